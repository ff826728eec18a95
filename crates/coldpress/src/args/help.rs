//! The ends of the helps: examples, sizes, variables, exit statuses.
//!
//! The long ones are also sections of the man pages.

use crate::knobs;

/// The end of `coldpress --help`.
pub(super) const MORE: &str = "\
Example: coldpress run --memory 512M -- python3 job.py
Details: coldpress help run";

/// The end of `coldpress help`.
pub(super) const DETAILS: &str = "\
Examples:
  coldpress doctor
  coldpress run --memory 512M -- python3 job.py
  coldpress ctl 4711 get

Environment:
Each option of run and the directory of doctor can be given as a variable. Its
name is COLDPRESS_ and that of the option: COLDPRESS_DISK_SIZE. An option on the
command line wins over its variable. An empty variable counts as unset.

  PATH             where run looks for PROGRAM
  XDG_RUNTIME_DIR  where a run has its socket; if unset, and for root, in /tmp

Exit status:
  0      done; of run: PROGRAM ended with 0
  1      ctl or report failed, or doctor found that programs cannot be managed
  2      the command line is wrong, but that of run
  125    run itself failed, or its command line is wrong
  126    run cannot execute PROGRAM
  127    run did not find PROGRAM
  128+N  signal N ended PROGRAM
Any other status of run is that of PROGRAM.";

/// The end of `coldpress run --help`.
pub(super) const RUN_MORE: &str = "\
Example: coldpress run --memory 512M -- python3 job.py
All options, sizes and exit statuses: coldpress help run";

/// The end of `coldpress help run`.
pub(super) const RUN_DETAILS: &str = "\
Examples:
  coldpress run --memory 512M -- python3 job.py
  coldpress run --memory 25% --codec zstd:3 -- sort big.txt
  coldpress run -m 2G --disk /mnt/fast --stats run.json -- java -jar app.jar
  COLDPRESS_MEMORY=1.5G coldpress run make -j4
  coldpress run --idle -- ./server
  coldpress run --wait -m 1G -- redis-server --daemonize yes

Sizes:
  K M G T, Ki Mi Gi Ti, KiB MiB GiB TiB   powers of 1024
  KB MB GB TB                             powers of 1000
  plain numbers                           bytes
  25%                                     of the cgroup's limit, also when that
                                          changes, else of the machine's memory

Environment:
Each option can be given as a variable: --disk-size as COLDPRESS_DISK_SIZE. An
option on the command line wins. An empty variable counts as unset.

Exit status:
  125    coldpress itself failed
  126    PROGRAM cannot be executed
  127    PROGRAM was not found
  128+N  signal N ended PROGRAM
Any other status is that of PROGRAM.";

/// The end of `coldpress ctl --help`.
pub(super) const CTL_MORE: &str = "\
Examples:
  coldpress ctl 4711 set memory=2G codec=zstd:3
  coldpress ctl 4711 thaw && gcore 4711
All knobs: coldpress help ctl";

/// Returns the end of `coldpress help ctl`.
pub(super) fn ctl_details() -> String {
    let examples = "\
Examples:
  coldpress ctl 4711 get
  coldpress ctl 4711 get pool_pages
  coldpress ctl 4711 set max_pool_percent=30 codec=zstd:3
  coldpress ctl 4711 set memory=2G
  coldpress ctl 4711 timeline > timeline.json
  coldpress ctl 4711 thaw && gcore 4711";
    let memory = "  memory (a size, a share as 25%, or auto)\n      The budget, as --memory of run";
    let status = "\
Exit status:
  0  done
  1  the run was not found, or refused
  2  the command line is wrong
A signal that gives thaw up ends the command.";
    format!("{examples}\n\n{}\n{memory}\n\n{status}", knobs::table())
}

/// The end of `coldpress top --help`.
pub(super) const TOP_MORE: &str = "\
Examples:
  coldpress top
  coldpress top --json 4711
Keys and columns: coldpress help top";

/// The keys and columns of `coldpress top`, which fit a screen of 80 by 24.
pub(crate) const TOP_KEYS: &str = "\
Keys:
  up, down         choose a row; also page up, page down, home, end
  left, right      fold and unfold what is below it; enter does either
  < and >          sort by the column before or after: its title is in capitals
  r                reverse the order
  b                change the budget
  s                set a knob
  t                thaw, or end that
  h, q             help, quit
Changes are made once y confirms them.

Columns:
  used      memory that the run or the process holds, compressed pages included
  budget    the budget of the run
  original  pages in the pool, before compression
  compr.    the same pages, after compression
  ratio     original to compressed
  disk      what is in use of the file
  faults/s  page faults a second
  stall%    time that threads waited for pages, of one thread's time";

/// Returns the end of `coldpress help top`.
pub(super) fn top_details() -> String {
    format!(
        "\
Examples:
  coldpress top
  coldpress top 4711
  coldpress top --once --interval 5
  coldpress top --json | jq '.runs[].used_bytes'

{TOP_KEYS}

The runs are those of this network name space. Most containers have another one:
use coldpress top inside, or coldpress top PID.
NO_COLOR=1 leaves colours out.

Exit status:
  0  done
  1  the run was not found, or refused, or there is no terminal
  2  the command line is wrong
A signal that ends the command puts the terminal back first."
    )
}

/// The end of `coldpress why --help`.
pub(super) const WHY_MORE: &str = "\
Example: coldpress why 4711";

/// The end of `coldpress help why`.
pub(super) const WHY_DETAILS: &str = "\
Examples:
  coldpress why 4711
  coldpress why --json 4711 | jq '.not_managed[].reason'

It lists what of the process is in memory and not managed, by the reason, the
largest first. It also says what keeps managed pages in place. For a process
that is not managed at all, it says why.

Exit status:
  0  done
  1  the process was not found, or is in no run, or may not be looked at
  2  the command line is wrong";

/// The end of `coldpress help doctor`.
pub(super) const DOCTOR_DETAILS: &str = "\
Exit status:
  0  programs can run within a budget
  1  they cannot
  2  the command line is wrong";

/// The end of `coldpress help report`.
pub(super) const REPORT_DETAILS: &str = "\
Examples:
  coldpress run -m 2G --report run.html -- java -jar app.jar
  coldpress run -m 2G --stats run.json -- java -jar app.jar
  coldpress report run.json --output run.html

The page is one file. It fetches nothing and runs nothing, and has a table behind
each picture.

Exit status:
  0  done
  1  the file has no statistics of this version, or the page cannot be written
  2  the command line is wrong";

/// The end of `coldpress advise --help`.
pub(super) const ADVISE_MORE: &str = "\
Example: coldpress advise -- python3 job.py
Input, output and exit statuses: coldpress help advise";

/// The end of `coldpress help advise`.
pub(super) const ADVISE_DETAILS: &str = "\
Examples:
  coldpress advise -- python3 job.py
  coldpress advise --slower 20% --runs 8 --json -- sort big.txt
  coldpress advise --curve -- java -jar app.jar < requests

The first run has all memory there is, and tells time and peak. Each other run has a
budget that follows from the runs before it. What is advised was tried: the measured
time stands beside the expected one. With more runs the budget is found closer.

Input and output:
A file on standard input is opened anew for each run. From a pipe or a terminal the
program gets nothing. What it prints is thrown away. Its last line on standard error
is shown where it fails. Files that it writes are written by each run.

A program that does not end with status 0 each time ends advise. An interrupt ends
the program, too. The options of run can be given as variables, as for run.

Exit status:
  0    done, also where no smaller budget will do
  1    the program failed, or advise itself
  2    the command line is wrong
  126  PROGRAM cannot be executed
  127  PROGRAM was not found";

/// What `coldpress help attach` says at its end.
pub(super) const ATTACH_DETAILS: &str = "\
The programs are stopped for a moment each, and run on within the budget. What they
start belongs to the run too. The command stays until they have ended. To leave them
before that, interrupt it, send it SIGTERM, or use `coldpress detach`. All pages come
back then, budget or not, and the programs are as they were. Where the command is
killed, the programs go on, managed.

Examples:
  coldpress attach --memory 2G 4711
  coldpress attach --idle $(pgrep -x redis-server)

Exit status: 0 at the end, 125 where no program could be attached to.";
