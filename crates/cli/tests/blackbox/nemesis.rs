//! Somebody who kills, stops and restarts the daemons of a cluster while a test works on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{Fixture, Prng};
use crate::shell::Shell;

/// What the nemesis does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Daemons that it may choose: `b1`, ..., `meta`.
    pub(crate) victims: Vec<String>,
    /// Pause between two faults, in milliseconds.
    pub(crate) every: std::ops::Range<u64>,
    /// How long a daemon is stopped, in milliseconds.
    pub(crate) stopped: std::ops::Range<u64>,
    /// Whether daemons are also killed, and started again.
    pub(crate) kills: bool,
}

impl Plan {
    /// Every daemon of an embedded cluster of so many bricks; nobody is stopped for longer than a lease.
    pub(crate) fn gentle(bricks: u32) -> Plan {
        let victims = (1..=bricks).map(|brick| format!("b{brick}")).chain(["meta".to_owned()]).collect();
        Plan { victims, every: 300..2000, stopped: 100..1500, kills: true }
    }

    /// As gentle, but daemons are also stopped for longer than a lease: up to 30 s in long runs. Bricks are put Out, come
    /// back and are brought level.
    pub(crate) fn harsh(bricks: u32) -> Plan {
        Plan { stopped: 100..if is_long() { 30_000 } else { 5_000 }, ..Plan::gentle(bricks) }
    }

    /// No call of a program takes longer: see RELIABILITY.md for what a pause is made of. While the metadata service is
    /// away everything waits for it.
    pub(crate) fn pause_max(&self) -> Duration {
        Duration::from_secs(30) + Duration::from_millis(self.stopped.end)
    }
}

/// Lets `work` run under a nemesis. Returns what it made, and how often the nemesis struck.
pub(crate) fn under_nemesis<T>(
    fixture: &Fixture,
    plan: &Plan,
    seed: u64,
    work: impl FnOnce() -> T,
) -> (T, usize) {
    let over = AtomicBool::new(false);
    let mut shell = Shell::new(fixture);
    thread::scope(|scope| {
        let faults = scope.spawn(|| strike_until(fixture, &mut shell, plan, seed, &over));
        let end = EndOnDrop(&over);
        let made = work();
        drop(end);
        (made, faults.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Ends the nemesis also if the work panics: the scope would wait for ever.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Stops a process for so many milliseconds.
pub(crate) fn stop_for(pid: i32, milliseconds: u64) {
    let pid = Pid::from_raw(pid);
    kill(pid, Signal::SIGSTOP).expect("the process runs");
    thread::sleep(Duration::from_millis(milliseconds));
    kill(pid, Signal::SIGCONT).expect("the process is stopped");
}

fn strike_until(fixture: &Fixture, shell: &mut Shell, plan: &Plan, seed: u64, over: &AtomicBool) -> usize {
    let mut prng = Prng::new(seed);
    let within = |prng: &mut Prng, range: &std::ops::Range<u64>| {
        Duration::from_millis(range.start + prng.below(range.end - range.start))
    };
    let mut faults = 0;
    while !over.load(Ordering::SeqCst) {
        let pause = within(&mut prng, &plan.every);
        sleep_unless(over, pause);
        let Some(victims) = victims(shell, plan) else { continue };
        let victim = &victims[prng.below(victims.len() as u64) as usize];
        if plan.kills && prng.below(2) == 0 {
            fixture.kill(victim);
            let up = shell.shoal("up");
            assert!(up.ok, "up: {}", up.stderr);
        } else {
            let time = within(&mut prng, &plan.stopped);
            stop_for(fixture.pid(victim), time.as_millis() as u64);
        }
        faults += 1;
    }
    faults
}

/// Who may be struck: anybody; while a brick's slots are Out only that brick and the metadata service, because a code
/// bears only so much. `None` if nobody can tell.
fn victims(shell: &mut Shell, plan: &Plan) -> Option<Vec<String>> {
    let status = shell.shoal("status --json");
    let status = status.ok.then(|| status.json())?;
    let groups = status["volumes"].as_array()?.iter().flat_map(|volume| volume["groups"].as_array());
    let slots = groups.flatten().flat_map(|group| group["slots"].as_array()).flatten();
    let out: Vec<&str> =
        slots.filter(|slot| slot["state"] != "live").filter_map(|slot| slot["brick"].as_str()).collect();
    let may = |victim: &&String| out.is_empty() || *victim == "meta" || out.contains(&victim.as_str());
    Some(plan.victims.iter().filter(may).cloned().collect())
        .filter(|victims: &Vec<String>| !victims.is_empty())
}

fn sleep_unless(over: &AtomicBool, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end && !over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(20));
    }
}

impl Fixture {
    /// Has every unit of the volume `main` compared: nothing may be wrong.
    pub(crate) fn verified(&self) {
        self.verified_volume("main");
    }

    /// As [`Fixture::verified`], of any volume.
    pub(crate) fn verified_volume(&self, name: &str) {
        let found = self.shoal(&["volume", "verify", name, "--json"]);
        if !found.ok {
            // Whether it lasts tells much about the cause.
            thread::sleep(Duration::from_secs(5));
            let again = self.shoal(&["volume", "verify", name]);
            panic!("volume verify:\n{}\n{}\nand later: {again:?}", found.stdout, found.stderr);
        }
        let found = found.json();
        assert_eq!((&found["mismatched"], &found["damaged"]), (&0.into(), &0.into()), "{found}");
    }
}

/// Whether the tests that take many minutes are wanted: `SHOAL_LONG=1`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SHOAL_LONG").is_some()
}
