//! Requests to a lab's server and their answers: one line of JSON each, of bounded length.
//!
//! ```text
//! {"request":"cut","cable":"1-2"}
//! {"done":{...}}   or   {"refused":"1-2 is cut already","try":"..."}   or   {"failed":"..."}
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::place::Place;
use crate::error::{LabError, Result, doing, refused};

/// Longest request, in bytes.
const REQUEST_MAX: u64 = 4 << 10;
/// Longest answer, in bytes.
const ANSWER_MAX: u64 = 4 << 20;
/// How long whoever connects may take to ask, and to take the answer: others wait meanwhile.
const ASK_PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take: to heal a lab takes longest.
const ANSWER_PATIENCE: Duration = Duration::from_secs(150);

/// What a lab can be asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Tell what the lab was made as, and how programs find its cluster.
    About,
    /// Tell what is seen.
    Look,
    /// Cut a cable.
    Cut(String),
    /// Mend a cable.
    Mend(String),
    /// Kill a node's brick.
    Kill(String),
    /// Stop a node's brick again and again for this long, in milliseconds; 0 ends that.
    Slow(String, u64),
    /// Mend, start and end everything that was cut, killed or slowed down.
    Heal,
    /// End.
    Down,
}

impl Request {
    /// As a JSON value.
    pub fn to_json(&self) -> Value {
        match self {
            Request::About => json!({ "request": "about" }),
            Request::Look => json!({ "request": "look" }),
            Request::Cut(cable) => json!({ "request": "cut", "cable": cable }),
            Request::Mend(cable) => json!({ "request": "mend", "cable": cable }),
            Request::Kill(node) => json!({ "request": "kill", "node": node }),
            Request::Slow(node, ms) => json!({ "request": "slow", "node": node, "ms": ms }),
            Request::Heal => json!({ "request": "heal" }),
            Request::Down => json!({ "request": "down" }),
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// It is no request.
    pub fn parse(line: &str) -> Result<Request> {
        let value: Value = serde_json::from_str(line).map_err(doing("read a request"))?;
        let text = |name: &str| {
            let found = value[name].as_str().map(str::to_owned);
            found.ok_or_else(|| doing("read a request")(format!("it has no `{name}`")))
        };
        match &*text("request")? {
            "about" => Ok(Request::About),
            "look" => Ok(Request::Look),
            "cut" => text("cable").map(Request::Cut),
            "mend" => text("cable").map(Request::Mend),
            "kill" => text("node").map(Request::Kill),
            "slow" => {
                let ms = value["ms"].as_u64().ok_or("it has no `ms`").map_err(doing("read a request"))?;
                Ok(Request::Slow(text("node")?, ms))
            }
            "heal" => Ok(Request::Heal),
            "down" => Ok(Request::Down),
            other => Err(doing("read a request")(format!("nobody knows `{other}`"))),
        }
    }
}

/// An answer as a JSON value.
pub fn answer(outcome: Result<Value>) -> Value {
    match outcome {
        Ok(done) => json!({ "done": done }),
        Err(LabError::Refused { what, remedy }) => json!({ "refused": what, "try": remedy }),
        Err(error) => json!({ "failed": error.to_string() }),
    }
}

/// Reads the output of [`answer`].
///
/// # Errors
/// The error that was answered.
pub fn outcome(value: &Value) -> Result<Value> {
    if let (Some(what), Some(remedy)) = (value["refused"].as_str(), value["try"].as_str()) {
        return Err(refused(what, remedy));
    }
    if let Some(why) = value["failed"].as_str() {
        return Err(LabError::Answered(why.to_owned()));
    }
    value.get("done").cloned().ok_or("it has no answer").map_err(doing("understand the lab"))
}

/// Asks a lab's server, and waits for the answer.
///
/// # Errors
/// The lab is not up, or what it answered.
pub fn ask(place: &Place, request: &Request) -> Result<Value> {
    let talk = || {
        let mut stream = UnixStream::connect(place.socket())?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        stream.write_all(format!("{}\n", request.to_json()).as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut line)?;
        Ok::<String, std::io::Error>(line)
    };
    let line = match talk() {
        Err(_) if !place.is_up() => return Err(place.not_up()),
        said => said.map_err(doing(format!("ask the lab `{}`", place.name())))?,
    };
    if line.is_empty() && !place.is_up() {
        return Err(place.not_up());
    }
    outcome(&serde_json::from_str(&line).map_err(doing("understand the lab"))?)
}

/// Answers requests one after the other, until `act` says that this was the last one.
///
/// # Errors
/// The socket fails.
pub fn serve(listener: &UnixListener, mut act: impl FnMut(Request) -> (Result<Value>, bool)) -> Result<()> {
    loop {
        let (mut stream, _) = listener.accept().map_err(doing("accept a connection"))?;
        let Ok(line) = read_request(&stream) else { continue };
        let (said, is_last) = match Request::parse(&line) {
            Ok(request) => act(request),
            Err(error) => (Err(error), false),
        };
        // Whoever asked may have gone; what was asked for is done.
        let _ = stream.write_all(format!("{}\n", answer(said)).as_bytes());
        if is_last {
            return Ok(());
        }
    }
}

fn read_request(stream: &UnixStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(ASK_PATIENCE))?;
    stream.set_write_timeout(Some(ASK_PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_their_lines() {
        let all = [
            Request::About,
            Request::Look,
            Request::Cut("1-2".into()),
            Request::Mend("rack0-switch".into()),
            Request::Kill("3".into()),
            Request::Slow("3".into(), 20),
            Request::Heal,
            Request::Down,
        ];
        for request in all {
            assert_eq!(Request::parse(&request.to_json().to_string()).expect("a request"), request);
        }
        for line in ["", "{}", "[1]", r#"{"request":"cut"}"#, r#"{"request":"x"}"#] {
            assert!(Request::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn answers_survive_their_lines() {
        assert_eq!(outcome(&answer(Ok(json!(7)))).expect("an answer"), json!(7));
        let said = outcome(&answer(Err(refused("no", "yes")))).expect_err("an error");
        assert!(matches!(said, LabError::Refused { what, remedy } if what == "no" && remedy == "yes"));
        let said = outcome(&answer(Err(doing("a")("b")))).expect_err("an error");
        assert_eq!(said.to_string(), "cannot a: b");
        assert!(outcome(&json!({})).is_err());
    }

    #[test]
    fn a_request_without_an_end_does_not_keep_the_server() {
        let path = std::env::temp_dir().join(format!("lab-request-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = 0;
                let served = serve(&listener, |request| {
                    seen += 1;
                    (Ok(json!(seen)), request == Request::Down)
                });
                served.expect("it serves");
            });
            let say = |line: &[u8]| {
                let mut stream = UnixStream::connect(&path).expect("a server");
                // It may be gone before it has read everything.
                let _ = stream.write_all(line);
                let mut said = String::new();
                let _ = stream.read_to_string(&mut said);
                said
            };
            // All that is read of it is no request.
            say(&[b'x'; 3 * REQUEST_MAX as usize]);
            assert!(say(b"nonsense\n").contains("failed"));
            let silent = UnixStream::connect(&path).expect("a server");
            assert_eq!(say(b"{\"request\":\"down\"}\n"), "{\"done\":1}\n");
            drop(silent);
        });
        std::fs::remove_file(&path).expect("it is there");
    }
}
