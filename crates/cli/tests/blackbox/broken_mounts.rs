//! Mounts that do not answer any more: `shoal status` names them, says what to do, and waits for none of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fixture::{Fixture, kill_now, text, within};

/// Longer than status waits for mounts.
const PATIENCE: Duration = Duration::from_secs(20);

/// What status says of a mount that does not answer.
fn broken(fixture: &Fixture, dir: &Path) -> Option<Value> {
    let status = within(PATIENCE, "status with a mount that does not answer", || fixture.status());
    let mounts = status["broken_mounts"].as_array().expect("a list").clone();
    mounts.into_iter().find(|mount| mount["dir"] == text(dir))
}

#[test]
fn status_names_a_mount_whose_daemon_has_ended() {
    let fixture = Fixture::new("dead-mount");
    fixture.up(3, "2+1", "128M");
    let (dead, sound) = (fixture.mount("dead"), fixture.mount("sound"));
    assert_eq!(broken(&fixture, &dead), None);
    kill_now(fixture.mount_pid(&dead));
    let found = broken(&fixture, &dead).expect("it is named");
    assert_eq!((&found["state"], &found["volume"]), (&"dead".into(), &"main".into()));
    let remedy = found["remedy"].as_str().expect("words").to_owned();
    assert_eq!(broken(&fixture, &sound), None);
    let words = fixture.must(&["status"]).stdout;
    assert!(words.contains(&format!("{} (main) is dead", dead.display())), "{words}");
    assert!(words.contains(&format!("`{remedy}`")), "{words}");
    assert!(words.contains(&format!("mounted here at {}", sound.display())), "{words}");
    assert!(!words.contains(&format!("mounted here at {}", dead.display())), "{words}");
    // It says what helps.
    fixture.must(&remedy.split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(broken(&fixture, &dead), None);
    fixture.umount(&sound);
}

#[test]
fn status_waits_for_no_mount_whose_daemon_stands_still() {
    let fixture = Fixture::new("still-mount");
    fixture.up(3, "2+1", "128M");
    let dir = fixture.mount("mnt");
    let daemon = fixture.mount_pid(&dir);
    kill(Pid::from_raw(daemon), Signal::SIGSTOP).expect("it runs");
    let found = broken(&fixture, &dir).expect("it is named");
    assert_eq!((&found["state"], &found["pid"]), (&"stopped".into(), &daemon.into()));
    let words = fixture.must(&["status"]).stdout;
    assert!(words.contains(&format!("`kill -CONT {daemon}`")), "{words}");
    // One whose daemon nobody knows: as in another container.
    let space = fs::metadata("/proc/self/ns/pid").expect("a namespace").ino();
    fs::remove_file(format!("/run/shoal/mount-{space}-{daemon}.json")).expect("its run file");
    let found = broken(&fixture, &dir).expect("it is named");
    assert_eq!((&found["state"], &found["pid"]), (&"silent".into(), &Value::Null));
    let words = within(PATIENCE, "status", || fixture.must(&["status"])).stdout;
    assert!(words.contains("has not answered") && words.contains("umount --lazy"), "{words}");
    kill(Pid::from_raw(daemon), Signal::SIGCONT).expect("it runs");
    assert_eq!(broken(&fixture, &dir), None);
    fixture.umount(&dir);
}
