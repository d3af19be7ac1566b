//! The experiments of a paper run to their end in small, and nothing of them is left: one is run, others are stopped
//! and killed, and results and processes are looked at.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fixture::{Fixture, text, wait_for};

/// Where the daemons of a lab have their files; it is in the arguments of each of them.
const ROOM: &str = "/run/lab";

/// Processes of a lab.
fn daemons() -> usize {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let of_lab = |entry: &fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(ROOM)
    };
    entries.filter(of_lab).count()
}

/// Nothing of a lab is left, nor a loop device over a file of the test. Other tests have loop devices of their own.
fn nothing_is_left(fixture: &Fixture) {
    assert!(wait_for(Duration::from_secs(30), || daemons() == 0), "{} daemons are left", daemons());
    for path in ["/run/netns/switch", "/run/netns/router", "/run/netns/node1", "/run/lab"] {
        assert!(!Path::new(path).exists(), "{path} is left");
    }
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(ROOM), "{mounts}");
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        assert!(!file.contains(ROOM) && !file.contains(text(&fixture.path(""))), "{device:?} over {file}");
    }
}

#[test]
fn a_paper_is_measured_and_told_in_small() {
    let fixture = Fixture::new("paper");
    let out = fixture.path("out");
    let document = fixture.must(&["paper", "001", "--quick", "--json", "--out", text(&out)]).json();
    nothing_is_left(&fixture);
    let runs = document["runs"].as_array().expect("runs");
    let count = |name: &str, value: &Value| runs.iter().filter(|run| run[name] == *value).count();
    // Two widths by the first node, then one and two others: four items each; and one of them by a slow link.
    assert_eq!(count("way", &"file gate".into()), 5 * 4, "{document:#}");
    assert_eq!(count("way", &"block gate".into()), 2);
    assert_eq!(count("way", &"local disk".into()), 4);
    assert_eq!(count("way", &"NFS gate".into()), 2);
    // Two widths by the first node.
    assert_eq!(count("way", &"file gate over remote block bricks".into()), 2 * 4);
    assert_eq!(count("way", &"the same, by NFS from a client".into()), 4);
    assert_eq!(count("mbit", &10.into()), 4);
    for run in runs {
        let rate = run["mb_per_s"].as_f64().expect("a rate");
        assert!(rate > 0.0 && run["bytes"].as_u64() >= Some(1 << 20), "{run}");
        // Nobody writes faster than the link allows: what an own brick takes off it, parity puts on.
        let wire = run["mbit"].as_f64().expect("a link") / 8.0 * run["clients"].as_f64().expect("clients");
        let writes = run["item"].as_str().is_some_and(|item| item.ends_with("write"));
        assert!(wire == 0.0 || !writes || rate < 1.2 * wire, "{run}");
    }
    let small = &document["small_write"];
    assert!(small["until_durable"]["writes"].as_u64() >= small["overwrites"].as_u64(), "{small}");
    assert!(small["wire_bytes"].as_u64() > Some(4096 * 32), "{small}");
    let page = fs::read_to_string(out.join("001.md")).expect("a page");
    for words in ["Table 3", "Figure 7", "Figure 8", "Figure 9", "Mechanisms", "reproduced", "quick run"] {
        assert!(page.contains(words), "`{words}` is not in\n{page}");
    }
    for picture in ["table3", "fig7", "fig8-write", "fig8-read", "fig9"] {
        let svg = fs::read_to_string(out.join(format!("001-{picture}.svg"))).expect("a picture");
        assert!(svg.starts_with("<svg ") && !svg.contains("NaN"), "{svg}");
    }
    // The page of the same runs is the same.
    let anew = fixture.path("anew");
    let file = out.join("001.json");
    fixture.must(&["paper", "001", "--from", text(&file), "--out", text(&anew)]);
    assert_eq!(fs::read_to_string(anew.join("001.md")).expect("a page"), page);
}

#[test]
fn translators_are_turned_off_and_on_and_the_wire_says_what_they_fetch() {
    let fixture = Fixture::new("paper-translators");
    let out = fixture.path("out");
    let document = fixture.must(&["paper", "000", "--quick", "--json", "--out", text(&out)]).json();
    nothing_is_left(&fixture);
    let runs = document["runs"].as_array().expect("runs");
    let count = |system: &str, name: &str, value: &Value| {
        runs.iter().filter(|run| run["system"] == system && run[name] == *value).count()
    };
    // Two orders and three sizes; then one client and two, then one thread and several, at three sizes without them.
    assert_eq!(count("Shoal", "setting", &"on".into()), 6, "{document:#}");
    assert_eq!(count("Shoal", "setting", &"auto".into()), 6);
    assert_eq!(count("Shoal", "setting", &"off".into()), 6 + 6 + 6);
    assert_eq!((count("Shoal", "clients", &2.into()), count("Shoal", "threads", &0.into())), (3, 3));
    assert!(document["gluster"].is_null() && count("GlusterFS", "setting", &"on".into()) == 0);
    for run in runs.iter().filter(|run| run["order"] == "random") {
        let number = |name: &str| run[name].as_f64().expect("a number");
        assert!(number("mb_per_s") > 0.0, "{run}");
        // Nothing comes from a cache; a page of 128 KiB comes for each read that the translators see.
        let fetched = number("wire_bytes") / number("bytes");
        let (least, most) = match run["setting"].as_str() {
            Some("on") => (0.7 * 131_072.0 / number("block"), 1.8 * 131_072.0 / number("block")),
            _ => (0.7, 1.8),
        };
        assert!((least..most).contains(&fetched), "{fetched} bytes on the wire for a byte: {run}");
    }
    let page = fs::read_to_string(out.join("000.md")).expect("a page");
    for words in ["Figures 4 and 5", "Figure 6", "GlusterFS", "reproduced", "quick run"] {
        assert!(page.contains(words), "`{words}` is not in\n{page}");
    }
    for picture in ["fig4", "fig5", "fig6", "gains"] {
        let svg = fs::read_to_string(out.join(format!("000-{picture}.svg"))).expect("a picture");
        assert!(svg.starts_with("<svg ") && !svg.contains("NaN"), "{svg}");
    }
    let anew = fixture.path("anew");
    let file = out.join("000.json");
    fixture.must(&["paper", "000", "--from", text(&file), "--out", text(&anew)]);
    assert_eq!(fs::read_to_string(anew.join("000.md")).expect("a page"), page);
    // The runs of one paper are none of another.
    fixture.shoal(&["paper", "001", "--from", text(&file)]).refused(&["000.json", "paper \"000\""]);
}

#[test]
fn a_torus_is_measured_in_small() {
    let fixture = Fixture::new("paper-torus");
    let out = fixture.path("out");
    let document = fixture.must(&["paper", "002", "--quick", "--json", "--out", text(&out)]).json();
    nothing_is_left(&fixture);
    let list = |name: &str| document[name].as_array().expect("a list").clone();
    // A chain of five nodes, and two sizes of messages.
    assert_eq!(
        (list("hops").len(), list("torus_sends").len(), list("tree_sends").len()),
        (4, 2, 2),
        "{document:#}"
    );
    for hop in list("hops") {
        let rate = hop["mb_per_s"].as_f64().expect("a rate");
        assert!(hop["us"].as_f64() > Some(0.0) && rate > 0.0 && rate < 13.0, "{hop}");
    }
    // Three places, three routes: as many units as are predicted, and headers.
    let counts = list("counts");
    assert_eq!(counts.len(), 9, "{document:#}");
    for count in &counts {
        let number = |what: &str| count[what]["unit_hops"].as_f64().expect("a number");
        let more = number("measured") / number("predicted");
        assert!((1.0..1.5).contains(&more), "{more}: {count}");
        let is_by_client = count["route"].as_str().is_some_and(|route| route.contains("client encodes"));
        // A busy machine makes a client ask twice.
        let (staged, stripes) = (count["staged"].as_u64(), count["stripes"].as_u64());
        assert_eq!(staged >= stripes, is_by_client, "{count}");
    }
    // Two records and two numbers of tasks, in order and by chance, by clients at three places; then one unit, one record, two
    // encoders.
    let runs = list("runs");
    let of = |system: &str| runs.iter().filter(|run| run["system"] == system).count();
    let each = 2 * 2 * 2 + 2 * 2 + 2 * 2;
    assert_eq!([of("Shoal, torus"), of("Shoal, in front"), of("Shoal, tree")], [each; 3], "{document:#}");
    assert_eq!(runs.len(), 3 * each);
    for run in &runs {
        let rate = run["mb_per_s"].as_f64().expect("a rate");
        // Four cables carry 100 MB/s, and one 25; nothing comes from a cache.
        let most = if run["system"] == "Shoal, torus" { 110.0 } else { 27.0 };
        assert!(rate > 0.0 && rate < most, "{run}");
    }
    let page = fs::read_to_string(out.join("002.md")).expect("a page");
    for words in ["Figure 1", "Figures 5 and 6", "Figure 8", "Who encodes", "Mechanisms", "quick run"] {
        assert!(page.contains(words), "`{words}` is not in\n{page}");
    }
    for picture in ["fig1", "fig2", "fig3", "fig8a-write", "fig8a-read", "fig8b-write", "fig8b-read", "fig9"]
    {
        let svg = fs::read_to_string(out.join(format!("002-{picture}.svg"))).expect("a picture");
        assert!(svg.starts_with("<svg ") && !svg.contains("NaN"), "{svg}");
    }
    let anew = fixture.path("anew");
    let file = out.join("002.json");
    fixture.must(&["paper", "002", "--from", text(&file), "--out", text(&anew)]);
    assert_eq!(fs::read_to_string(anew.join("002.md")).expect("a page"), page);
}

#[test]
fn a_shallow_port_is_read_through_in_small() {
    let fixture = Fixture::new("paper-shallow");
    let out = fixture.path("out");
    let document = fixture.must(&["paper", "004", "--quick", "--json", "--out", text(&out)]).json();
    nothing_is_left(&fixture);
    let runs = document["runs"].as_array().expect("runs");
    let of = |system: &str| runs.iter().filter(|run| run["system"] == system).collect::<Vec<_>>();
    // One and two tasks read and write behind two buffers; one and two clients; two mounts; two numbers of servers; two controls;
    // one and two clients share a memory; two clients write.
    let (naive, shoal) = (of("Shoal without a window"), of("Shoal"));
    assert_eq!((naive.len(), shoal.len(), runs.len()), (21, 21, 42), "{document:#}");
    for run in runs {
        let number = |name: &str| run[name].as_f64().expect("a number");
        // Nothing comes from a cache: nobody has more than the wire carries.
        assert!(number("mb_per_s") > 0.0 && number("share") < 1.1, "{run}");
        assert!((0.2..=1.0).contains(&number("fairness")), "{run}");
    }
    let mounts = |run: &Value| Some(run["clients"].as_u64()? * run["mounts"].as_u64()?);
    assert!(naive.iter().all(|run| run["windows"].as_array().is_some_and(Vec::is_empty)));
    for run in shoal.iter().filter(|run| run["way"] == "read") {
        let windows = run["windows"].as_array().expect("windows");
        assert_eq!(Some(windows.len() as u64), mounts(run), "{run}");
        // A part of the least window.
        assert!(windows.iter().all(|bytes| bytes.as_u64() >= Some(8 << 10)), "{run}");
    }
    // One of the shallow port, one of the deep one, whose buffer holds larger bursts.
    let probes = document["probes"].as_array().expect("probes");
    assert_eq!(probes.len(), 2, "{document:#}");
    let whole = |probe: &Value| probe["burst_whole_bytes"].as_u64();
    assert!(whole(&probes[0]) < whole(&probes[1]), "{probes:?}");
    let page = fs::read_to_string(out.join("004.md")).expect("a page");
    for words in ["Figure 3", "Figures 4 and 5", "One memory", "Other congestion controls", "quick run"] {
        assert!(page.contains(words), "`{words}` is not in\n{page}");
    }
    for picture in ["fig3", "fig4", "clients", "ports"] {
        let svg = fs::read_to_string(out.join(format!("004-{picture}.svg"))).expect("a picture");
        assert!(svg.starts_with("<svg ") && !svg.contains("NaN"), "{svg}");
    }
    let anew = fixture.path("anew");
    let file = out.join("004.json");
    fixture.must(&["paper", "004", "--from", text(&file), "--out", text(&anew)]);
    assert_eq!(fs::read_to_string(anew.join("004.md")).expect("a page"), page);
}

/// True if some device of this machine can have the scheduler.
fn can_have(scheduler: &str) -> bool {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut lists =
        devices.filter_map(|device| fs::read_to_string(device.path().join("queue/scheduler")).ok());
    lists.any(|list| list.contains(scheduler))
}

#[test]
fn orders_of_requests_are_modelled_and_measured_on_a_device() {
    let fixture = Fixture::new("paper-disk");
    let out = fixture.path("out");
    let missing = fixture.path("missing");
    let here = fixture.path("");
    let on = |dir| ["paper", "003", "--quick", "--json", "--out", text(&out), "--disk-dir", dir];
    let words = on(text(&here));
    fixture.shoal(&on(text(&missing))).refused(&["missing", "paper 003"]);
    if !["mq-deadline", "kyber", "bfq"].into_iter().all(can_have) {
        fixture.shoal(&words).refused(&["this kernel has no scheduler"]);
        return;
    }
    let document = fixture.must(&words).json();
    nothing_is_left(&fixture);
    let runs = document["runs"].as_array().expect("runs");
    // Six workloads under four schedulers of the kernel, seven policies, and three schedulers below a brick, in one turn.
    assert_eq!(runs.len(), 6 * 14, "{document:#}");
    for run in runs {
        assert!(run["score"].as_f64().is_some_and(|score| score > 0.0), "{run}");
    }
    let reads = document["random_reads"].as_array().expect("reads");
    assert!(reads.len() == 4 && reads.iter().all(|run| run["reads_per_s"].as_f64() > Some(0.0)), "{reads:?}");
    let page = fs::read_to_string(out.join("003.md")).expect("a page");
    for words in ["Table 3", "What was wanted", "Shoal slq-auto", "kernel bfq", "quick run"] {
        assert!(page.contains(words), "`{words}` is not in\n{page}");
    }
    for picture in ["bandwidth", "latency", "blogbench", "fig17", "auto", "device"] {
        let svg = fs::read_to_string(out.join(format!("003-{picture}.svg"))).expect("a picture");
        assert!(svg.starts_with("<svg ") && !svg.contains("NaN"), "{svg}");
    }
    let anew = fixture.path("anew");
    let file = out.join("003.json");
    fixture.must(&["paper", "003", "--from", text(&file), "--out", text(&anew)]);
    assert_eq!(fs::read_to_string(anew.join("003.md")).expect("a page"), page);
}

#[test]
fn a_paper_that_is_stopped_or_killed_leaves_nothing() {
    let fixture = Fixture::new("paper-stopped");
    // The second time several tasks write to a mount: they cannot be killed before it answers.
    let cases = [("001", "file gate", Signal::SIGTERM), ("004", "tasks write", Signal::SIGTERM)];
    for (paper, when, signal) in cases.into_iter().chain([("004", "tasks write", Signal::SIGKILL)]) {
        let out = fixture.path("out");
        let mut command = fixture.command(&["paper", paper, "--quick", "--out", text(&out)]);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("MB/s") || !line.contains(when) {
            line.clear();
            assert!(
                said.read_line(&mut line).expect("a line") > 0,
                "it ended before it had measured anything"
            );
        }
        assert!(daemons() > 0, "a cluster runs");
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it runs");
        assert!(!child.wait().expect("it ends").success());
        nothing_is_left(&fixture);
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("what it said");
        assert!(!rest.contains("panicked"), "{rest}");
        assert!(!out.exists(), "there is a page of nothing");
    }
}

#[test]
fn what_is_no_result_is_refused() {
    let fixture = Fixture::new("paper-refused");
    let file = fixture.path("runs.json");
    fs::write(&file, "{}").expect("a file");
    fixture.shoal(&["paper", "001", "--from", text(&file)]).refused(&["runs.json", "another version"]);
    fs::write(&file, "no").expect("a file");
    fixture.shoal(&["paper", "001", "--from", text(&file)]).refused(&["runs.json is no JSON"]);
    fixture.shoal(&["paper", "005"]).refused(&["005"]);
}
