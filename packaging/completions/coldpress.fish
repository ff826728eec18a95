# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_coldpress_global_optspecs
    string join \n h/help V/version
end

function __fish_coldpress_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_coldpress_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_coldpress_using_subcommand
    set -l cmd (__fish_coldpress_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c coldpress -n "__fish_coldpress_needs_command" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_needs_command" -s V -l version -d 'Print version'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "ctl" -d 'See and turn the knobs of a run while it goes on'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "top" -d 'Watch runs and their processes, and turn their knobs'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "why" -d 'Say why memory of a process stays in place'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "report" -d 'Make a report of a run to read, from what --stats has written'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "advise" -d 'Find the smallest budget in which a program hardly takes longer'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "attach" -d 'Hold programs that run already within a memory budget'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "detach" -d 'Leave a program that was attached to'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "run" -d 'Run a program within a memory budget'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "doctor" -d 'Check whether programs can be run here, and say what mends it'
complete -c coldpress -n "__fish_coldpress_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and not __fish_seen_subcommand_from get set timeline metrics thaw" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and not __fish_seen_subcommand_from get set timeline metrics thaw" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and not __fish_seen_subcommand_from get set timeline metrics thaw" -a "get" -d 'Print the knobs and all counters, one a line, or one of them'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and not __fish_seen_subcommand_from get set timeline metrics thaw" -a "set" -d 'Turn knobs: all of them, or none when one is wrong'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and not __fish_seen_subcommand_from get set timeline metrics thaw" -a "timeline" -d 'Print how the run stood from its beginning on, and what happened'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and not __fish_seen_subcommand_from get set timeline metrics thaw" -a "metrics" -d 'Print the metrics of now, as OpenMetrics'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and not __fish_seen_subcommand_from get set timeline metrics thaw" -a "thaw" -d 'Bring every page back, to stay'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from get" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from get" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from set" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from set" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from timeline" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from timeline" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from thaw" -l force -d 'Bring them back whatever memory is free'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from thaw" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand ctl; and __fish_seen_subcommand_from thaw" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand top" -l interval -d 'Time between two looks, 0.1 to 3600' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand top" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand top" -l all -d 'List runs of other users too'
complete -c coldpress -n "__fish_coldpress_using_subcommand top" -l once -d 'Print the table once, for scripts'
complete -c coldpress -n "__fish_coldpress_using_subcommand top" -l json -d 'Print one JSON document, for scripts'
complete -c coldpress -n "__fish_coldpress_using_subcommand why" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand why" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand report" -s o -l output -d 'The page to write, in place of standard output' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand report" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l slower -d 'How much longer the program may take, in percent' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l runs -d 'The most runs of the program, 3 to 50' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l codec -d 'How cold pages are compressed, as of `run`' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l disk -d 'Directory for the file of the coldest pages, or none, as of `run`' -r -f -a "(__fish_complete_directories)"
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l set -d 'Turn a knob, as of `run`' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l show-memory -d 'What is shown as the machine\'s memory, as of `run`' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l curve -d 'Spread the runs over all budgets, and print time against budget'
complete -c coldpress -n "__fish_coldpress_using_subcommand advise" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -s m -l memory -d 'Memory for the programs and their children, as of `run`' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -l idle -d 'Take memory that is not touched for long, as of `run`' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -l disk -d 'Directory for the file of the coldest pages, or none' -r -f -a "(__fish_complete_directories)"
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -l set -d 'Turn a knob; `coldpress help ctl` lists them' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -l stats -d 'Write at the end what happened, as JSON' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -l report -d 'Write at the end a report to read, as of `run`' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -l metrics -d 'Export metrics, as of `run`' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -l unsafe-fork -d 'Manage programs also when their forks are not seen, as of `run`'
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -s q -l quiet -d 'Print nothing of our own but errors'
complete -c coldpress -n "__fish_coldpress_using_subcommand attach" -s v -l verbose -d 'Say what is done and found; --quiet wins over it'
complete -c coldpress -n "__fish_coldpress_using_subcommand detach" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -s m -l memory -d 'Memory for PROGRAM and its children' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l idle -d 'Take memory that is not touched for long' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l codec -d 'How cold pages are compressed' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l pool -d 'Where compressed pages are kept: zsmalloc, xvmalloc, xcfmalloc or segment' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l disk -d 'Directory for the file of the coldest pages, or none' -r -f -a "(__fish_complete_directories)"
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l disk-size -d 'The most that this file may grow to' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l max-pool-percent -d 'The most that compressed pages may take of the budget, in percent' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l set -d 'Turn a knob; `coldpress help ctl` lists them' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l show-memory -d 'What is shown as the machine\'s memory' -r
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l stats -d 'Write at the end what happened, as JSON' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l report -d 'Write at the end a report to read, as one page of HTML' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l metrics -d 'Export metrics for monitoring systems: FILE, unix:PATH or HOST:PORT' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l record -d 'Record what memory coldpress itself takes and frees' -r -F
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l ready -d 'Tell systemd that the service is ready once PROGRAM has begun'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -s w -l wait -d 'Stay until the last process of the run has ended'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -s q -l quiet -d 'Print nothing of our own but errors'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -s v -l verbose -d 'Say what is done and found; --quiet wins over it'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l allow-unmanaged -d 'Run a program also when it cannot be managed'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l no-lend -d 'Keep what root may do to root\'s programs'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l unsafe-fork -d 'Manage a program also when its forks are not seen'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -l require-managed -d 'Run nothing that is not managed'
complete -c coldpress -n "__fish_coldpress_using_subcommand run" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand doctor" -l disk -d 'Directory to check for the coldest pages, as of `run`' -r -f -a "(__fish_complete_directories)"
complete -c coldpress -n "__fish_coldpress_using_subcommand doctor" -l json -d 'Print one JSON document on standard output'
complete -c coldpress -n "__fish_coldpress_using_subcommand doctor" -s h -l help -d 'Print a short help; `coldpress help` has more'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "ctl" -d 'See and turn the knobs of a run while it goes on'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "top" -d 'Watch runs and their processes, and turn their knobs'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "why" -d 'Say why memory of a process stays in place'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "report" -d 'Make a report of a run to read, from what --stats has written'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "advise" -d 'Find the smallest budget in which a program hardly takes longer'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "attach" -d 'Hold programs that run already within a memory budget'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "detach" -d 'Leave a program that was attached to'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "run" -d 'Run a program within a memory budget'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "doctor" -d 'Check whether programs can be run here, and say what mends it'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and not __fish_seen_subcommand_from ctl top why report advise attach detach run doctor help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and __fish_seen_subcommand_from ctl" -f -a "get" -d 'Print the knobs and all counters, one a line, or one of them'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and __fish_seen_subcommand_from ctl" -f -a "set" -d 'Turn knobs: all of them, or none when one is wrong'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and __fish_seen_subcommand_from ctl" -f -a "timeline" -d 'Print how the run stood from its beginning on, and what happened'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and __fish_seen_subcommand_from ctl" -f -a "metrics" -d 'Print the metrics of now, as OpenMetrics'
complete -c coldpress -n "__fish_coldpress_using_subcommand help; and __fish_seen_subcommand_from ctl" -f -a "thaw" -d 'Bring every page back, to stay'
