# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_coldpress_bench_global_optspecs
    string join \n h/help V/version coldpress=
end

function __fish_coldpress_bench_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_coldpress_bench_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_coldpress_bench_using_subcommand
    set -l cmd (__fish_coldpress_bench_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -s V -l version -d 'Print the version'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "fault" -d 'The time of one fault on a compressed page'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "fit" -d 'What a program pays that fits its budget'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "start" -d 'What the start of a program costs, and of every process of a script'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "fork" -d 'What a fork costs a program of which half is away'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "slab" -d 'The slab beside the system\'s malloc'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "frames" -d 'Single frames, their descriptors, and huge pages that stay whole'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "pools" -d 'Pools of compressed pages: how densely and quickly they keep them'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "codecs" -d 'The codecs on pages of programs: bytes, times, use of a dictionary'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "policy" -d 'Which page to give up, on recorded touches of real programs'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "swap" -d 'Threads over the kernel\'s swap and over coldpress, in equal memory'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "programs" -d 'Real programs over the same'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "trees" -d 'Trees of real processes over the same: redis, PostgreSQL, Python'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "zswap" -d 'Jobs like those of a compiler under growing pressure'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "build" -d 'Real compilers under growing pressure'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "view" -d 'Programs that size themselves, by the memory that they are shown'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "advise" -d 'Times that `coldpress advise` predicts, beside those measured'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "all" -d 'All of them, with their defaults, kept as files'
complete -c coldpress-bench -n "__fish_coldpress_bench_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l data -d 'Data of the workload, compressible 2.5 to 1' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l memory -d 'Its budget; large enough that all data stay in memory, for there is no disk' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l accesses -d 'Random accesses in a round' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l against -d 'Compare with another build of coldpress' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fault" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -l against -d 'Compare with another build of coldpress' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -l memory -d 'The budget, far above the 150 MB that a job takes' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fit" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -l part -d 'What to measure; several are possible, and all is the default' -r -f -a "script\t'A program that does nothing, and a script of many'
kinds\t'Programs of each kind, static ones among them, and their first touches'
attach\t'How long programs stand still that are attached to and left'
children\t'A program that starts 200 static ones a second'"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -l against -d 'Compare with another build of coldpress' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand start" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l data -d 'Data of the program that forks, compressible 2.5 to 1' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l memory -d 'Its budget; with the default, half of the data are away' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l against -d 'Compare with another build of coldpress' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l forks -d 'Forks in each run' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l directory -d 'Directory for the disk of coldpress' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand fork" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand slab" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand slab" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand slab" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand slab" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand slab" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand slab" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -l part -d 'What to measure; several are possible, and all is the default' -r -f -a "order-0\t'Single frames, allocated and freed'
descriptors\t'Descriptors of 64, 56, 32 and 8 bytes'
huge\t'Huge pages with one zone and with two'"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -l trace -d 'A recorded trace of frame allocations; several are possible' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand frames" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l pool -d 'The pools; all is the default' -r -f -a "xvmalloc\t''
xcfmalloc\t''
xcfmalloc-16-byte\t''
zsmalloc-1\t''
zsmalloc-2\t''
zsmalloc-4\t''
zsmalloc-8\t''
zsmalloc-16\t''
segment\t''"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l tables -d 'The tables; all is the default' -r -f -a "t1\t'Zero-filled pages and text, as in the mail on xcfmalloc'
t2\t'Classes with short and long zspages, as in the mail on zsmalloc'
t3\t'One sequence of allocations, the sizes swept'
t4\t'Density over time'
t5\t'Single calls'"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l trace -d 'Traces of compressed sizes, or folders of them' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l codec -d 'Which traces of a folder' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l churn -d 'What happens to the objects of T4; everything is the default' -r -f -a "fresh\t''
half\t''
nine-tenths\t''
turnover\t''
overwrite\t''"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l objects -d 'Objects of the large pools of T4, of up to 4 KiB each; 0 for none' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l classes -d 'Print every class in T2'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand pools" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l pages -d 'Pages to measure; several files are possible' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l pid -d 'A running process whose pages to measure; several are possible' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l count -d 'Pages of each program that are measured, and as many for training' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l svg -d 'Draw bytes and load times of all codecs into FILE' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand codecs" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -l trace -d 'A recorded trace of touches; several are possible' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -l budget -d 'Room for so many percent of the pages a trace touches' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -l record -d 'Record the program behind `--` into FILE instead' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand policy" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l data -d 'Data of the program' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l pages -d 'Pages to copy the data from' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l share -d 'The memory, of all that the data take' -r -f -a "total-50\t'Half of the data, compressed pages included'
total-75\t'Three quarters of the data, compressed pages included'
total-25\t'A quarter of the data, compressed pages included'
resident-50\t'Half of the data in place, and compressed pages beside it'
resident-25\t'A quarter of the data in place, and compressed pages beside it'"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l threads -d 'Threads of the program' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l writes -d 'Touches that write, in percent' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l peer -d 'The kernel\'s swap to compare with' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l directory -d 'Directory on a disk' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l against -d 'Compare with another build of coldpress' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l millis -d 'Milliseconds of each order of touches in a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l svg -d 'Draw touches a second, by threads, into FILE' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand swap" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l program -d 'The programs; all that are installed is the default' -r -f -a "python\t''
redis\t''
sqlite\t''
sort\t''
node\t''
java\t''
compile\t''
polars\t''
chdb\t''
jq\t''
java-g1\t''
git\t''
ruby\t''
nix\t''
prometheus\t''
restic\t''"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l share -d 'The memory, of the most that the program holds by itself' -r -f -a "total-50\t'Half of the data, compressed pages included'
total-75\t'Three quarters of the data, compressed pages included'
total-25\t'A quarter of the data, compressed pages included'
resident-50\t'Half of the data in place, and compressed pages beside it'
resident-25\t'A quarter of the data in place, and compressed pages beside it'"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l peer -d 'The kernel\'s swap to compare with' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l directory -d 'Directory on a disk' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand programs" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l tree -d 'The trees; all that are installed is the default' -r -f -a "redis\t''
postgres\t''
python\t''"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l share -d 'The memory, of the most that the tree holds by itself' -r -f -a "total-50\t'Half of the data, compressed pages included'
total-75\t'Three quarters of the data, compressed pages included'
total-25\t'A quarter of the data, compressed pages included'
resident-50\t'Half of the data in place, and compressed pages beside it'
resident-25\t'A quarter of the data in place, and compressed pages beside it'"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l peer -d 'The kernel\'s swap to compare with' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l directory -d 'Directory on a disk' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand trees" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l jobs -d 'Jobs at a time; each number is measured' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l total -d 'Jobs in all' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l largest -d 'Memory of the largest job; the smallest takes a quarter of it' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l memory -d 'The memory of all, compressed pages included' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l peer -d 'The kernel\'s swap to compare with' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l directory -d 'Directory on a disk' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l threads -d 'Jobs are threads of one process; else each is a process, as of make'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand zswap" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l source -d 'The source of PostgreSQL 15, as `scripts/fetch-postgresql` leaves it' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l jobs -d 'Compilers at a time; each number is measured' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l memory -d 'The memory of all, compressed pages included' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l peer -d 'The kernel\'s swap to compare with' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l directory -d 'Directory on a disk' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l rounds -d 'Rounds, in each of which every side has a turn' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand build" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -l program -d 'The programs; all that are installed is the default' -r -f -a "java-50\t''
java-300\t''
java-700\t''
node\t''
sort\t''
duckdb\t''
chdb\t''
dask\t''
erlang\t''
dotnet\t''"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -l limit -d 'Seconds after which a run is stopped' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -l directory -d 'Directory for what programs read and write, and for the disk of coldpress' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand view" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l program -d 'The programs; all that are installed is the default' -r -f -a "polars\t''
duckdb\t''
nix\t''
jq\t''
r\t''
java-g1\t''
ghc\t''
cargo\t''
git\t''
ruby\t''
samtools\t''
demo\t''"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l runs -d 'Runs of each program that predict, as of `coldpress advise`' -r
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l with -d 'Add programs that were measured before, from what --json printed' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l directory -d 'Directory for what programs read and write, and for the disk of coldpress' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l out -d 'Directory to keep the figures in, too' -r -f -a "(__fish_complete_directories)"
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l quick -d 'Little work, whose times say nothing'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -l json -d 'Print one JSON document on standard output'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand advise" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand all" -l out -d 'Directory for the figures' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand all" -l source -d 'The source of PostgreSQL 15 for `build`, which is left out without it' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand all" -l coldpress -d 'The command to measure; the default lies beside this one' -r -F
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand all" -s h -l help -d 'Print a short help; `coldpress-bench help` has more'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "fault" -d 'The time of one fault on a compressed page'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "fit" -d 'What a program pays that fits its budget'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "start" -d 'What the start of a program costs, and of every process of a script'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "fork" -d 'What a fork costs a program of which half is away'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "slab" -d 'The slab beside the system\'s malloc'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "frames" -d 'Single frames, their descriptors, and huge pages that stay whole'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "pools" -d 'Pools of compressed pages: how densely and quickly they keep them'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "codecs" -d 'The codecs on pages of programs: bytes, times, use of a dictionary'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "policy" -d 'Which page to give up, on recorded touches of real programs'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "swap" -d 'Threads over the kernel\'s swap and over coldpress, in equal memory'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "programs" -d 'Real programs over the same'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "trees" -d 'Trees of real processes over the same: redis, PostgreSQL, Python'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "zswap" -d 'Jobs like those of a compiler under growing pressure'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "build" -d 'Real compilers under growing pressure'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "view" -d 'Programs that size themselves, by the memory that they are shown'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "advise" -d 'Times that `coldpress advise` predicts, beside those measured'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "all" -d 'All of them, with their defaults, kept as files'
complete -c coldpress-bench -n "__fish_coldpress_bench_using_subcommand help; and not __fish_seen_subcommand_from fault fit start fork slab frames pools codecs policy swap programs trees zswap build view advise all help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
