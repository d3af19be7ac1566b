//! A client of NFS version 3, made of another implementation's messages: what the gate says is read by somebody else.

use std::io::{self, Cursor, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nfs3_types::mount::{self, dirpath, mountres3};
use nfs3_types::nfs3::*;
use nfs3_types::portmap::{self, mapping};
use nfs3_types::rpc::{auth_unix, call_body, fragment_header, msg_body, opaque_auth, reply_body, rpc_msg};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketType};

/// How long an answer may take: longer than the gate's own patience with the cluster.
const PATIENCE: Duration = Duration::from_secs(90);
/// Ports that only root can use and that few services have.
const FIRST_PORT: u16 = 600;
const PORTS: u16 = 424;

/// A user of an NFS client.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

pub(crate) const ROOT: User = User { uid: 0, gid: 0, groups: Vec::new() };

pub(crate) fn user(uid: u32, groups: &[u32]) -> User {
    User { uid, gid: uid, groups: groups.to_vec() }
}

/// See the module.
pub(crate) struct NfsClient {
    pub(crate) conn: TcpStream,
    pub(crate) user: User,
    pub(crate) xid: u32,
}

/// Connects as kernels do, from a port that only root can use.
pub(crate) fn from_a_privileged_port(address: SocketAddr) -> io::Result<TcpStream> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let (here, family): (IpAddr, _) = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), AddressFamily::INET),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), AddressFamily::INET6),
    };
    for _ in 0..PORTS {
        let port = FIRST_PORT
            + (std::process::id() as u16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let socket = net::socket(family, SocketType::STREAM, None)?;
        net::sockopt::set_socket_reuseaddr(&socket, true)?;
        let connected =
            net::bind(&socket, &SocketAddr::new(here, port)).and_then(|()| net::connect(&socket, &address));
        match connected {
            Ok(()) => return Ok(TcpStream::from(socket)),
            // Somebody else has it, or had it for this gate a moment ago.
            Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The results of a procedure, or the number of its failure.
pub(crate) type NfsResult<T> = Result<T, nfsstat3>;

impl NfsClient {
    pub(crate) fn connect(address: SocketAddr, user: User) -> io::Result<NfsClient> {
        NfsClient::over(from_a_privileged_port(address)?, user)
    }

    /// A client on a connection.
    pub(crate) fn over(conn: TcpStream, user: User) -> io::Result<NfsClient> {
        conn.set_nodelay(true)?;
        conn.set_read_timeout(Some(PATIENCE))?;
        conn.set_write_timeout(Some(PATIENCE))?;
        Ok(NfsClient { conn, user, xid: std::process::id() << 8 })
    }

    /// The bytes of a call, as one record.
    pub(crate) fn record<A: Pack>(&mut self, program: u32, procedure: u32, arguments: &A) -> Vec<u8> {
        self.xid = self.xid.wrapping_add(1);
        let credential = auth_unix {
            stamp: 0,
            machinename: Opaque::borrowed(b"test"),
            uid: self.user.uid,
            gid: self.user.gid,
            gids: self.user.groups.clone(),
        };
        let vers = if program == portmap::PROGRAM { portmap::VERSION } else { VERSION };
        let call = call_body {
            rpcvers: 2,
            prog: program,
            vers,
            proc: procedure,
            cred: opaque_auth::auth_unix(&credential),
            verf: opaque_auth::default(),
        };
        let mut bytes = vec![0; 4];
        rpc_msg { xid: self.xid, body: msg_body::CALL(call) }.pack(&mut bytes).expect("it fits");
        arguments.pack(&mut bytes).expect("they fit");
        let mark = fragment_header::new(bytes.len() as u32 - 4, true);
        bytes[..4].copy_from_slice(&mark.into_xdr_buf());
        bytes
    }

    /// Sends a call and does not wait. Its number is [`NfsClient::xid`].
    pub(crate) fn send<A: Pack>(&mut self, procedure: NFS_PROGRAM, arguments: &A) -> io::Result<()> {
        let record = self.record(PROGRAM, procedure as u32, arguments);
        self.conn.write_all(&record)
    }

    /// The next answer: its number, and what follows the head.
    pub(crate) fn receive(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut mark = [0; 4];
        self.conn.read_exact(&mut mark)?;
        let mark = fragment_header::from(mark);
        assert!(mark.eof(), "the gate's records have one fragment");
        assert!(mark.fragment_length() < 2 << 20, "the gate's records are bounded");
        let mut record = vec![0; mark.fragment_length() as usize];
        self.conn.read_exact(&mut record)?;
        let mut cursor = Cursor::new(record);
        let (message, _) = rpc_msg::unpack(&mut cursor).expect("an RPC message");
        let accepted = match message.body {
            msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)) => accepted.reply_data,
            other => panic!("not accepted: {other:?}"),
        };
        let is_success = matches!(accepted, nfs3_types::rpc::accept_stat_data::SUCCESS);
        assert!(is_success, "not carried out: {accepted:?}");
        let at = cursor.position() as usize;
        Ok((message.xid, cursor.into_inner().split_off(at)))
    }

    fn call<A: Pack, R: Unpack>(&mut self, program: u32, procedure: u32, arguments: &A) -> io::Result<R> {
        let record = self.record(program, procedure, arguments);
        self.conn.write_all(&record)?;
        let (xid, body) = self.receive()?;
        assert_eq!(xid, self.xid, "the answer to another call");
        Ok(read(&body))
    }

    /// Calls a procedure of NFS.
    pub(crate) fn ask<A: Pack, T: Unpack, E: Unpack>(
        &mut self,
        procedure: NFS_PROGRAM,
        arguments: &A,
    ) -> io::Result<NfsResult<T>> {
        let result: Nfs3Result<T, E> = self.call(PROGRAM, procedure as u32, arguments)?;
        Ok(match result {
            Nfs3Result::Ok(done) => Ok(done),
            Nfs3Result::Err((status, _)) => Err(status),
        })
    }

    /// As [`NfsClient::ask`], of a gate that stays.
    fn must<A: Pack, T: Unpack, E: Unpack>(&mut self, procedure: NFS_PROGRAM, arguments: &A) -> NfsResult<T> {
        self.ask::<A, T, E>(procedure, arguments).expect("the gate answers")
    }

    /// The handle of a path, `/main/...`.
    pub(crate) fn mount(&mut self, path: &str) -> Result<nfs_fh3, u32> {
        let path = dirpath(Opaque::borrowed(path.as_bytes()));
        let result: mountres3<'static> = self.call(mount::PROGRAM, 1, &path).expect("the gate answers");
        match result {
            mountres3::Ok(mounted) => Ok(nfs_fh3 { data: mounted.fhandle.0 }),
            mountres3::Err(status) => Err(status as u32),
        }
    }

    /// Paths that can be mounted.
    pub(crate) fn exports(&mut self) -> Vec<String> {
        let list: mount::exports<'static, 'static> =
            self.call(mount::PROGRAM, 5, &nfs3_types::xdr_codec::Void).expect("the gate answers");
        list.0.iter().map(|node| String::from_utf8_lossy(&node.ex_dir.0).into_owned()).collect()
    }

    /// The port of a program.
    pub(crate) fn port(&mut self, program: u32, version: u32) -> u32 {
        let asked = mapping { prog: program, vers: version, prot: portmap::IPPROTO_TCP, port: 0 };
        self.call(portmap::PROGRAM, 3, &asked).expect("the gate answers")
    }

    pub(crate) fn getattr(&mut self, object: &nfs_fh3) -> NfsResult<fattr3> {
        let arguments = GETATTR3args { object: object.clone() };
        let done: NfsResult<GETATTR3resok> =
            self.must::<_, _, nfs3_types::xdr_codec::Void>(NFS_PROGRAM::NFSPROC3_GETATTR, &arguments);
        done.map(|done| done.obj_attributes)
    }

    pub(crate) fn setattr(
        &mut self,
        object: &nfs_fh3,
        new: sattr3,
        guard: Option<nfstime3>,
    ) -> NfsResult<fattr3> {
        let guard = guard.map_or(Nfs3Option::None, Nfs3Option::Some);
        let arguments = SETATTR3args { object: object.clone(), new_attributes: new, guard };
        let done: NfsResult<SETATTR3resok> =
            self.must::<_, _, SETATTR3resfail>(NFS_PROGRAM::NFSPROC3_SETATTR, &arguments);
        done.map(|done| done.obj_wcc.after.unwrap())
    }

    pub(crate) fn lookup(&mut self, directory: &nfs_fh3, name: &str) -> NfsResult<nfs_fh3> {
        let arguments = LOOKUP3args { what: place(directory, name) };
        let done: NfsResult<LOOKUP3resok> =
            self.must::<_, _, LOOKUP3resfail>(NFS_PROGRAM::NFSPROC3_LOOKUP, &arguments);
        done.map(|done| done.object)
    }

    pub(crate) fn access(&mut self, object: &nfs_fh3) -> NfsResult<u32> {
        let arguments = ACCESS3args { object: object.clone(), access: 0x3f };
        let done: NfsResult<ACCESS3resok> =
            self.must::<_, _, ACCESS3resfail>(NFS_PROGRAM::NFSPROC3_ACCESS, &arguments);
        done.map(|done| done.access)
    }

    pub(crate) fn create(&mut self, directory: &nfs_fh3, name: &str, how: createhow3) -> NfsResult<nfs_fh3> {
        let arguments = CREATE3args { where_: place(directory, name), how };
        let done: NfsResult<CREATE3resok> =
            self.must::<_, _, CREATE3resfail>(NFS_PROGRAM::NFSPROC3_CREATE, &arguments);
        done.map(|done| done.obj.unwrap())
    }

    /// A file with this mode, new or old.
    pub(crate) fn file(&mut self, directory: &nfs_fh3, name: &str, mode: u32) -> nfs_fh3 {
        self.create(directory, name, createhow3::UNCHECKED(with_mode(mode))).expect("a file")
    }

    pub(crate) fn mkdir(&mut self, directory: &nfs_fh3, name: &str, mode: u32) -> NfsResult<nfs_fh3> {
        let arguments = MKDIR3args { where_: place(directory, name), attributes: with_mode(mode) };
        let done: NfsResult<MKDIR3resok> =
            self.must::<_, _, MKDIR3resfail>(NFS_PROGRAM::NFSPROC3_MKDIR, &arguments);
        done.map(|done| done.obj.unwrap())
    }

    pub(crate) fn symlink(&mut self, directory: &nfs_fh3, name: &str, target: &str) -> NfsResult<nfs_fh3> {
        let symlink_data = nfspath3(Opaque::borrowed(target.as_bytes()));
        let symlink = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data };
        let arguments = SYMLINK3args { where_: place(directory, name), symlink };
        let done: NfsResult<SYMLINK3resok> =
            self.must::<_, _, SYMLINK3resfail>(NFS_PROGRAM::NFSPROC3_SYMLINK, &arguments);
        done.map(|done| done.obj.unwrap())
    }

    pub(crate) fn readlink(&mut self, symlink: &nfs_fh3) -> NfsResult<Vec<u8>> {
        let arguments = READLINK3args { symlink: symlink.clone() };
        let done: NfsResult<READLINK3resok<'static>> =
            self.must::<_, _, READLINK3resfail>(NFS_PROGRAM::NFSPROC3_READLINK, &arguments);
        done.map(|done| done.data.0.to_vec())
    }

    pub(crate) fn mknod(&mut self, directory: &nfs_fh3, name: &str, what: mknoddata3) -> NfsResult<nfs_fh3> {
        let arguments = MKNOD3args { where_: place(directory, name), what };
        let done: NfsResult<MKNOD3resok> =
            self.must::<_, _, MKNOD3resfail>(NFS_PROGRAM::NFSPROC3_MKNOD, &arguments);
        done.map(|done| done.obj.unwrap())
    }

    pub(crate) fn remove(&mut self, directory: &nfs_fh3, name: &str) -> NfsResult<()> {
        let arguments = REMOVE3args { object: place(directory, name) };
        let done: NfsResult<REMOVE3resok> =
            self.must::<_, _, REMOVE3resfail>(NFS_PROGRAM::NFSPROC3_REMOVE, &arguments);
        done.map(|_| ())
    }

    pub(crate) fn rmdir(&mut self, directory: &nfs_fh3, name: &str) -> NfsResult<()> {
        let arguments = RMDIR3args { object: place(directory, name) };
        let done: NfsResult<RMDIR3resok> =
            self.must::<_, _, RMDIR3resfail>(NFS_PROGRAM::NFSPROC3_RMDIR, &arguments);
        done.map(|_| ())
    }

    pub(crate) fn rename(&mut self, from: (&nfs_fh3, &str), to: (&nfs_fh3, &str)) -> NfsResult<()> {
        let arguments = RENAME3args { from: place(from.0, from.1), to: place(to.0, to.1) };
        let done: NfsResult<RENAME3resok> =
            self.must::<_, _, RENAME3resfail>(NFS_PROGRAM::NFSPROC3_RENAME, &arguments);
        done.map(|_| ())
    }

    pub(crate) fn link(&mut self, file: &nfs_fh3, directory: &nfs_fh3, name: &str) -> NfsResult<fattr3> {
        let arguments = LINK3args { file: file.clone(), link: place(directory, name) };
        let done: NfsResult<LINK3resok> =
            self.must::<_, _, LINK3resfail>(NFS_PROGRAM::NFSPROC3_LINK, &arguments);
        done.map(|done| done.file_attributes.unwrap())
    }

    /// Bytes at a place; true if the file ends with them.
    pub(crate) fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> NfsResult<(Vec<u8>, bool)> {
        let arguments = READ3args { file: file.clone(), offset, count };
        let done: NfsResult<READ3resok<'static>> =
            self.must::<_, _, READ3resfail>(NFS_PROGRAM::NFSPROC3_READ, &arguments);
        done.map(|done| {
            assert_eq!(done.count as usize, done.data.len());
            assert!(
                done.file_attributes.is_none(),
                "Linux bears no answers to reads with heads of several lengths"
            );
            (done.data.to_vec(), done.eof)
        })
    }

    /// Everything in a file.
    pub(crate) fn read_all(&mut self, file: &nfs_fh3) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (bytes, ended) = self.read(file, all.len() as u64, 1 << 20).expect("bytes");
            assert!(ended || !bytes.is_empty(), "neither bytes nor the end");
            all.extend(bytes);
            if ended {
                return all;
            }
        }
    }

    pub(crate) fn try_write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> io::Result<NfsResult<WRITE3resok>> {
        let arguments = writing(file, offset, data, stable);
        self.ask::<_, _, WRITE3resfail>(NFS_PROGRAM::NFSPROC3_WRITE, &arguments)
    }

    /// Writes; returns the verifier.
    pub(crate) fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> NfsResult<u64> {
        let done = self.try_write(file, offset, data, stable).expect("the gate answers")?;
        assert_eq!(done.count as usize, data.len());
        assert!(done.committed as u32 >= stable as u32, "less stable than asked for");
        assert!(done.file_wcc.after.is_some());
        Ok(u64::from_be_bytes(done.verf.0))
    }

    pub(crate) fn try_commit(&mut self, file: &nfs_fh3) -> io::Result<NfsResult<u64>> {
        let arguments = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let done: NfsResult<COMMIT3resok> =
            self.ask::<_, _, COMMIT3resfail>(NFS_PROGRAM::NFSPROC3_COMMIT, &arguments)?;
        Ok(done.map(|done| u64::from_be_bytes(done.verf.0)))
    }

    /// Makes everything stable; returns the verifier.
    pub(crate) fn commit(&mut self, file: &nfs_fh3) -> NfsResult<u64> {
        self.try_commit(file).expect("the gate answers")
    }

    /// A page of names with their cookies, and whether it is the last.
    pub(crate) fn page(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        count: u32,
    ) -> NfsResult<(Vec<(String, u64)>, bool)> {
        let arguments = READDIR3args { dir: dir.clone(), cookie, cookieverf: cookieverf3::default(), count };
        let done: NfsResult<READDIR3resok<'static>> =
            self.must::<_, _, READDIR3resfail>(NFS_PROGRAM::NFSPROC3_READDIR, &arguments);
        let entry = |entry: &entry3<'_>| (String::from_utf8_lossy(&entry.name.0).into_owned(), entry.cookie);
        done.map(|done| (done.reply.entries.0.iter().map(entry).collect(), done.reply.eof))
    }

    /// As [`NfsClient::page`], with the entries' attributes and handles.
    pub(crate) fn page_plus(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        count: u32,
    ) -> NfsResult<(Vec<entryplus3<'static>>, bool)> {
        let cookieverf = cookieverf3::default();
        let arguments =
            READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount: count, maxcount: count };
        let done: NfsResult<READDIRPLUS3resok<'static>> =
            self.must::<_, _, READDIRPLUS3resfail>(NFS_PROGRAM::NFSPROC3_READDIRPLUS, &arguments);
        done.map(|done| (done.reply.entries.0, done.reply.eof))
    }

    pub(crate) fn fs_stat(&mut self, root: &nfs_fh3) -> NfsResult<FSSTAT3resok> {
        let arguments = FSSTAT3args { fsroot: root.clone() };
        self.must::<_, _, FSSTAT3resfail>(NFS_PROGRAM::NFSPROC3_FSSTAT, &arguments)
    }

    pub(crate) fn fs_info(&mut self, root: &nfs_fh3) -> NfsResult<FSINFO3resok> {
        let arguments = FSINFO3args { fsroot: root.clone() };
        self.must::<_, _, FSINFO3resfail>(NFS_PROGRAM::NFSPROC3_FSINFO, &arguments)
    }

    pub(crate) fn path_conf(&mut self, object: &nfs_fh3) -> NfsResult<PATHCONF3resok> {
        let arguments = PATHCONF3args { object: object.clone() };
        self.must::<_, _, PATHCONF3resfail>(NFS_PROGRAM::NFSPROC3_PATHCONF, &arguments)
    }
}

/// The results of a procedure out of its answer: all of it.
pub(crate) fn read<R: Unpack>(body: &[u8]) -> R {
    let mut cursor = Cursor::new(body);
    let (result, _) = R::unpack(&mut cursor).expect("results as the protocol has them");
    assert_eq!(cursor.position() as usize, body.len(), "bytes after the results");
    result
}

/// The arguments of a write.
pub(crate) fn writing<'a>(file: &nfs_fh3, offset: u64, data: &'a [u8], stable: stable_how) -> WRITE3args<'a> {
    WRITE3args { file: file.clone(), offset, count: data.len() as u32, stable, data: Opaque::borrowed(data) }
}

pub(crate) fn place<'a>(directory: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: directory.clone(), name: filename3::from(name.as_bytes()) }
}

pub(crate) fn with_mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}
