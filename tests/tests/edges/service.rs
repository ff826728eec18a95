//! A service of systemd with `DynamicUser=` and `SystemCallFilter=@system-service`: the filter,
//! from the list that systemd publishes, and a user without any rights. systemd need not run.

use coldpress_tests::machine::{Setting, is_root, require};
use coldpress_tests::matrix::{self, Lane, case};

use super::{Ground, HANG, compare_managed};

/// One of the users that systemd gives to dynamic users: 61184 to 65519.
const USER: &str = "61234";

/// Returns words that start what follows them as such a service does. A call that is not allowed
/// gets `action`.
fn service(ground: &Ground, action: &str) -> Vec<String> {
    let setpriv = format!(
        "setpriv --reuid={USER} --regid={USER} --clear-groups --bounding-set=-all \
         --inh-caps=-all --no-new-privs --"
    );
    let mut words: Vec<String> = setpriv.split(' ').map(str::to_owned).collect();
    words.extend([ground.text("edge"), "filter".to_owned(), action.to_owned()]);
    words.push(ground.text("system-service.txt"));
    words
}

/// Runs the launcher as root, and the program in the service.
fn program_alone(action: &str) -> Option<()> {
    require("setpriv")?;
    let ground = Ground::new();
    let words = service(&ground, action);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    compare_managed(&ground.hold("program", &words)?, HANG)
}

/// Runs the launcher in the service too, where it needs access to userfaultfd.
fn launcher_too(action: &str) -> Option<()> {
    require("setpriv")?;
    let ground = Ground::new();
    let Some(_open) = Setting::set("/proc/sys/vm/unprivileged_userfaultfd", "1") else {
        println!("skipped: userfaultfd cannot be opened to all here");
        return None;
    };
    let job = ground.hold("launcher", &[])?.before(service(&ground, action));
    compare_managed(&job, HANG)
}

#[test]
fn services_of_systemd() {
    if !is_root() {
        return;
    }
    let cases = [
        case("the program in the service", Lane::Short, || program_alone("errno")),
        case("the program in the service, whose filter kills", Lane::Long, || {
            program_alone("kill")
        }),
        case("the launcher in the service", Lane::Long, || launcher_too("errno")),
        case("the launcher in the service, whose filter kills", Lane::Long, || {
            launcher_too("kill")
        }),
    ];
    matrix::run(&cases);
}
