//! The OCI image: the program, the libraries it needs and the certificates it trusts, and nothing
//! else: no shell, no package manager.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Tree, cannot, done};
use crate::Failure;

/// The settings in the image: a file, so that one that is mounted over it has the last word. A variable
/// would go before what that says.
const SETTINGS: &str = include_str!("../../../packaging/image.toml");
/// Puts what the program needs below a folder, from this machine.
const GATHER: &str = r#"
set -e
tree=$1 files=$2
mkdir -p "$files/usr/bin" "$files/etc/ssl/certs" "$files/etc/onlyonce" "$files/data" "$files/tmp"
cp "$tree/usr/bin/onlyonce" "$files/usr/bin/"
ldd "$files/usr/bin/onlyonce" | grep -o '/[^ ]*' | while read -r library; do
  cp -L --parents "$library" "$files"
done
cp -L /etc/ssl/certs/ca-certificates.crt "$files/etc/ssl/certs/"
echo 'onlyonce:x:65532:65532::/data:/nonexistent' > "$files/etc/passwd"
echo 'onlyonce:x:65532:' > "$files/etc/group"
printf '%s' "$3" > "$files/etc/onlyonce/onlyonce.toml"
chmod 1777 "$files/tmp"
"#;
/// Makes an image of them without a registry, and runs it once.
const BUILD: &str = r#"
set -e
files=$1 archive=$2 version=$3 epoch=$4
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
buildah copy --quiet "$container" "$files" / >/dev/null
buildah copy --quiet --chown 65532:65532 --chmod 700 "$container" "$files/data" /data >/dev/null
buildah config --user 65532:65532 --workingdir /data --volume /data --port 8080 --port 9090 \
  --env ONLYONCE_CONFIG=/etc/onlyonce/onlyonce.toml \
  --entrypoint '["/usr/bin/onlyonce"]' --cmd gateway --stop-signal SIGTERM \
  --label org.opencontainers.image.title=onlyonce \
  --label org.opencontainers.image.version="$version" \
  --label org.opencontainers.image.licenses='MIT OR Apache-2.0' "$container"
buildah run "$container" -- /usr/bin/onlyonce --version
buildah commit --quiet --timestamp "$epoch" "$container" "oci-archive:$archive:onlyonce:$version" >/dev/null
"#;

/// Makes the image in `folder`.
pub(super) fn make(tree: &Tree, folder: &Path) -> Result<(), Failure> {
    let files = folder.join("image");
    let mut gather = Command::new("sh");
    gather
        .args(["-c", GATHER, "sh"])
        .arg(tree.folder())
        .arg(&files)
        .arg(SETTINGS);
    done(&mut gather)?;
    let archive = folder.join(format!("onlyonce-{}-image.tar", tree.version()));
    let mut build = Command::new("sh");
    build.args(["-c", BUILD, "sh"]).arg(&files).arg(&archive);
    done(build.args([tree.version(), tree.epoch()]))?;
    fs::remove_dir_all(&files).map_err(|error| cannot(&files, &error))
}
