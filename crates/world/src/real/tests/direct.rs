//! Disks without the page cache.

use super::*;

#[test]
fn a_direct_disk_keeps_what_is_written_and_needs_whole_blocks_for_writes_only() {
    on_each_disk("direct", |_, path| async move {
        drop(Disk::create(&path, 1 << 20).unwrap());
        let disk = match Disk::open(&path, DiskMode::Direct) {
            Ok(disk) => disk,
            // The file system has no direct I/O, and says so: the rest cannot be seen here.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains("no direct I/O"), "{error}");
                return;
            }
        };
        let bytes = Buf::from(noise(5 * BLOCK));
        // Parts that are not aligned, and cut anywhere.
        let parts =
            vec![bytes.slice(0..100), bytes.slice(100..3 * BLOCK + 7), bytes.slice(3 * BLOCK + 7..5 * BLOCK)];
        disk.write(2 * BLOCK as u64, parts).await.unwrap();
        disk.sync().await.unwrap();
        assert_eq!(disk.read(2 * BLOCK as u64, 5 * BLOCK).await.unwrap(), bytes);
        assert_eq!(&*disk.read(2 * BLOCK as u64 + 33, 9_000).await.unwrap(), &bytes[33..9_033]);
        assert_eq!(
            &*disk.read(BLOCK as u64 + 4_000, 200).await.unwrap(),
            &[&[0; 96][..], &bytes[..104]].concat()[..]
        );
        // What others see in the page cache.
        assert_eq!(std::fs::read(&path).unwrap()[2 * BLOCK..7 * BLOCK], *bytes);
        let past = disk.read((1 << 20) - BLOCK as u64, 2 * BLOCK).await.unwrap_err();
        assert_eq!(past.kind(), ErrorKind::UnexpectedEof);
        let shared = disk.shared().disk();
        assert_eq!(shared.read(2 * BLOCK as u64, BLOCK).await.unwrap(), bytes.slice(0..BLOCK));
    });
}
