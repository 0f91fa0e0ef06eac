//! Files: written whole or not at all, and never read without end.

use std::io::{BufWriter, Error, ErrorKind, Read as _, Result, Write};
use std::path::Path;

/// Bytes of a file of settings.
pub const MOST_SETTINGS: u64 = 1 << 20;

/// Bytes of a text that a person writes or another verb has written.
pub const MOST_TEXT: u64 = 1 << 28;

/// Bytes of a corpus or a checkpoint.
pub const MOST_DATA: u64 = 1 << 30;

/// Reads a file of at most `most` bytes, so that an endless one (`/dev/zero`) ends with an error and not with the
/// memory.
pub fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path)?.take(most + 1);
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::other(format!(
            "more than {most} bytes, the most that is read of such a file"
        )));
    }
    Ok(bytes)
}

/// Reads a text of at most `most` bytes ([`read_bytes`]).
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read_bytes(path, most)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

/// The folder that a file is in, or would be.
pub fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Lets `fill` write a file beside `path` and renames it when that succeeded, so that a full disk leaves the old file
/// and no half of a new one. A symbolic link keeps pointing where it did; what exists and is no regular file (a
/// terminal, a pipe, `/dev/null`) is written into and never replaced.
pub fn write_whole(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let path = match std::fs::metadata(path) {
        Ok(found) if found.is_file() => std::fs::canonicalize(path)?,
        Ok(_) => {
            let mut file = BufWriter::new(std::fs::OpenOptions::new().write(true).open(path)?);
            fill(&mut file)?;
            return file.flush();
        }
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_path_buf(),
        Err(error) => return Err(error),
    };
    let folder = folder_of(&path);
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // As any new file: the umask applies.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    // The name of the temporary file is of no use to a reader of the message.
    let plain = |error: Error| match error.raw_os_error() {
        Some(code) => Error::from_raw_os_error(code),
        None => error.kind().into(),
    };
    let mut file = BufWriter::new(builder.tempfile_in(folder).map_err(plain)?);
    fill(&mut file)?;
    let file = file.into_inner().map_err(|e| e.into_error())?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn an_endless_file_ends_with_an_error() {
        let error = read_bytes(Path::new("/dev/zero"), 1000).unwrap_err();
        assert!(error.to_string().contains("more than 1000 bytes"));
        assert_eq!(read_bytes(Path::new("/dev/null"), 0).unwrap(), b"");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        write_whole(&path, |f| f.write_all(b"old")).unwrap();
        let fails = |f: &mut dyn Write| {
            f.write_all(b"new")?;
            Err(ErrorKind::StorageFull.into())
        };
        write_whole(&path, fails).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write_whole(&path, |f| f.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, b"old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write_whole(&link, |f| f.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        assert!(link.is_symlink());
        write_whole(Path::new("/dev/null"), |f| f.write_all(b"x")).unwrap();
        assert!(!Path::new("/dev/null").is_file());
        assert!(write_whole(folder.path(), |f| f.write_all(b"x")).is_err());
    }
}
