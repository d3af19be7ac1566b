//! No daemon keeps its thread for too long: the logs of every black-box test are searched for such turns, and one test
//! writes such lines into a log, which must be found.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::fixture::{Fixture, wait_for};

/// CPU time from which on a turn of a task is a fault, in milliseconds: `world::turns::TURN_MAX_US`.
const TURN_MAX_MS: u64 = 500;

/// CPU time of a long turn that a line of a log tells of, in milliseconds.
pub(crate) fn own_work(line: &str) -> Option<u64> {
    let (_, told) = line.split_once("a turn of the task `")?;
    let (_, own) = told.strip_suffix(" ms of them its thread's own work")?.rsplit_once(' ')?;
    own.parse().ok()
}

/// Lines of a log about turns that took too long. The time on the clock does not count: on a busy machine it is that of
/// others.
pub(crate) fn overlong_turns(log: &Path) -> Vec<String> {
    let said = fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let overlong = said.lines().filter(|line| own_work(line).is_some_and(|own| own >= TURN_MAX_MS));
    overlong.map(|line| format!("{}: {line}", log.display())).collect()
}

#[test]
fn a_turn_that_takes_too_long_fails_its_test() {
    let told = |own: u64| {
        format!(
            "2026-01-01T00:00:00Z  WARN world::turns: a turn of the task `request Purge` took 812 ms, {own} ms of them \
             its thread's own work\n"
        )
    };
    let failing = |said: &[u64]| {
        let fixture = Fixture::new("turns");
        for own in said {
            let text = ["2026-01-01T00:00:00Z  INFO shoal: listening\n", &told(*own)].concat();
            // Each daemon of one name begins its log anew.
            let mut daemon = Command::new("sh");
            daemon.args(["-c", "printf %s \"$0\" >&2", &text]);
            fixture.start("brick", daemon);
            assert!(wait_for(Duration::from_secs(10), || fixture.said("brick").contains("own work")));
            fixture.check_logs(&[]);
        }
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(fixture)));
        dropped.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
    };
    assert_eq!(failing(&[499]), None, "the machine was busy");
    assert!(failing(&[500]).is_some_and(|text| text.contains("`request Purge` took 812 ms, 500 ms")));
    assert!(failing(&[700, 10]).is_some_and(|text| text.contains("700 ms")), "a log that was begun anew");
}
