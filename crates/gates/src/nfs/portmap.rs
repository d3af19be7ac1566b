//! The program PORTMAP, version 2 (RFC 1833): tells the port of a program. All programs are at the gate's port.

use super::wire::{
    AcceptStat, Call, Garbage, MOUNT, NFS, NFS_VERSION, PORTMAP, PORTMAP_VERSION, Reader, Writer,
};

const TCP: u32 = 6;
/// The programs here, with their versions.
const HERE: [(u32, u32); 3] = [(PORTMAP, PORTMAP_VERSION), (NFS, NFS_VERSION), (MOUNT, NFS_VERSION)];

/// Carries a procedure out.
pub(super) fn answer(port: u16, call: &Call<'_>) -> Result<Writer, AcceptStat> {
    let mut writer = Writer::default();
    match call.procedure {
        0 => {}
        // SET and UNSET are refused.
        1 | 2 => {
            writer.bool(false);
        }
        3 => {
            let asked = asked(call.arguments.clone()).map_err(|Garbage| AcceptStat::GarbageArgs)?;
            let here = HERE.iter().any(|(program, version)| asked == (*program, *version, TCP));
            writer.u32(if here { port.into() } else { 0 });
        }
        4 => {
            for (program, version) in HERE {
                writer.bool(true).u32(program).u32(version).u32(TCP).u32(port.into());
            }
            writer.bool(false);
        }
        _ => return Err(AcceptStat::ProcUnavail),
    }
    Ok(writer)
}

fn asked(mut arguments: Reader<'_>) -> Result<(u32, u32, u32), Garbage> {
    Ok((arguments.u32()?, arguments.u32()?, arguments.u32()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::wire::Credential;

    fn ask(procedure: u32, words: &[u32]) -> Result<Vec<u32>, AcceptStat> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let call = Call {
            xid: 1,
            program: PORTMAP,
            version: PORTMAP_VERSION,
            procedure,
            credential: Credential::None,
            arguments: Reader::new(&bytes),
        };
        let bytes = answer(2049, &call)?.into_bytes();
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect())
    }

    #[test]
    fn programs_are_found_at_the_port() {
        assert_eq!(ask(3, &[NFS, 3, TCP, 0]), Ok(vec![2049]));
        assert_eq!(ask(3, &[MOUNT, 3, TCP, 0]), Ok(vec![2049]));
        assert_eq!(ask(3, &[NFS, 4, TCP, 0]), Ok(vec![0]));
        assert_eq!(ask(3, &[NFS, 3, 17, 0]), Ok(vec![0]));
        assert_eq!(ask(3, &[NFS]), Err(AcceptStat::GarbageArgs));
        assert_eq!(ask(4, &[]).map(|words| words.len()), Ok(3 * 5 + 1));
        assert_eq!(ask(5, &[]), Err(AcceptStat::ProcUnavail));
    }
}
