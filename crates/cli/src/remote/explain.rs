//! What a failed call means to the user, and what to do.

use std::net::ToSocketAddrs;

use types::Refusal;
use world::CallError;

use crate::problem::problem;

/// The error for a failed call, with a remedy.
pub(crate) fn explain(error: CallError, address: &str) -> anyhow::Error {
    match error {
        CallError::Refused(Refusal::NotLeader) => problem(
            format!("the metadata server at {address} follows another one"),
            "--meta with all metadata servers, as in A:7400,B:7400,C:7400; `shoal meta list` shows them",
        ),
        CallError::Refused(refusal) => {
            anyhow::anyhow!("the metadata service at {address} refused: {refusal}")
        }
        CallError::Unreachable => match address.split(',').find(|server| server.to_socket_addrs().is_err()) {
            Some(unknown) => problem(
                format!("this machine knows no address of {unknown}, which should be a metadata server"),
                "check the name in --meta, or use a number: `getent hosts NAME` asks as this command does",
            ),
            None => problem(
                format!("the metadata service at {address} does not answer"),
                "`shoal up` for a cluster of this machine; otherwise check --meta, and that `shoal meta` runs there",
            ),
        },
        CallError::WrongKey => problem(
            format!("the metadata service at {address} has another key than this command"),
            "--key-file with the key of that cluster",
        ),
        CallError::WrongCluster { theirs } => problem(
            format!("the service at {address} belongs to another cluster ({theirs})"),
            "the address of the right cluster's metadata service in --meta",
        ),
        CallError::OtherVersion { theirs } => problem(
            format!("the server at {address} speaks wire version {theirs}, this command {}", world::spoken()),
            match theirs > types::wire::VERSION {
                true => "this machine's shoal upgraded to the version of the servers",
                false => "the servers upgraded first, or a command of their version",
            },
        ),
        CallError::BadReply => problem(
            format!(
                "the server at {address} is not a metadata service of Shoal, or has an incompatible version"
            ),
            "check --meta",
        ),
    }
}
