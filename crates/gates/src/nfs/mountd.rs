//! The program MOUNT, version 3 (RFC 1813, appendix I): returns the handle of the volume's root, or of a directory
//! below it.

use types::messages::names::{Attr, FileKind};

use super::gate::Gate;
use super::wire::{AcceptStat, Call, Garbage, Results, Status, Writer};

/// Longest path. Source: RFC 1813, appendix I.
const PATH_MAX: usize = 1024;
/// The kind of credential that clients must send.
const AUTH_SYS: u32 = 1;

/// Carries out a procedure.
pub(super) async fn answer(gate: &Gate, call: &Call<'_>) -> Result<Results, AcceptStat> {
    let mut writer = Writer::default();
    let mut arguments = call.arguments.clone();
    match call.procedure {
        // NULL, UMNT and UMNTALL: there is no state of clients to remove.
        0 | 3 | 4 => {}
        1 => {
            let path = arguments.opaque(PATH_MAX).map_err(|Garbage| AcceptStat::GarbageArgs)?;
            match gate.at_path(path).await {
                Ok(attr) => {
                    writer.u32(0).opaque(&gate.shared.file_system.handle(attr.inode)).u32(1).u32(AUTH_SYS);
                }
                Err(status) => {
                    tracing::debug!(path = %path.escape_ascii(), ?status, "a path is not exported");
                    writer.u32(status.code());
                }
            }
        }
        // DUMP: clients are not recorded, so the list is empty.
        2 => {
            writer.bool(false);
        }
        // EXPORT: one export, without a group of clients.
        5 => {
            writer.bool(true).opaque(format!("/{}", gate.shared.volume).as_bytes()).bool(false).bool(false);
        }
        _ => return Err(AcceptStat::ProcUnavail),
    }
    Ok(writer.into())
}

/// The names of a path below the volume; `None` if it is another volume.
fn below<'a>(volume: &str, path: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    match names.next() {
        // The path `/` means the volume's root.
        None => Some(Vec::new()),
        Some(first) => (first == volume.as_bytes()).then(|| names.collect()),
    }
}

impl Gate {
    /// The directory at a path that begins with the volume's name.
    async fn at_path(&self, path: &[u8]) -> Result<Attr, Status> {
        let names = below(&self.shared.volume, path).ok_or(Status::NoEntry)?;
        let mut attr = self.attr(self.shared.mount.root()).await?;
        for name in names {
            if attr.kind != FileKind::Directory {
                return Err(Status::NotDirectory);
            }
            attr = self.step(&attr, name).await?;
        }
        if attr.kind == FileKind::Directory { Ok(attr) } else { Err(Status::NotDirectory) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_with_the_volume() {
        let names = |path: &'static str| below("main", path.as_bytes());
        assert_eq!(names("/"), Some(vec![]));
        assert_eq!(names("/main"), Some(vec![]));
        assert_eq!(names("main/a//b/"), Some(vec![&b"a"[..], b"b"]));
        assert_eq!(names("/other"), None);
        assert_eq!(names("/main2"), None);
    }
}
