//! Files that are there whole or not at all.

use std::io::{BufWriter, Result, Write};
use std::path::Path;

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
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => path.to_path_buf(),
        Err(error) => return Err(error),
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // As any new file: the umask applies.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    // The name of the temporary file is of no use to a reader of the message.
    let plain = |error: std::io::Error| match error.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
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

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        write_whole(&path, |f| f.write_all(b"old")).unwrap();
        let fails = |f: &mut dyn Write| {
            f.write_all(b"new")?;
            Err(std::io::ErrorKind::StorageFull.into())
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
