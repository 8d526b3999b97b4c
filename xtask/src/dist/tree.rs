//! The files as they are installed, and the archives made of them. Times and owners are fixed, so that
//! the same commit gives the same archives.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cannot, done};
use crate::Failure;
use crate::cargo::{root, stdout};

const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Files of the repository, and where they are installed.
const COPIED: [(&str, &str); 7] = [
    (
        "packaging/onlyonce.service",
        "usr/lib/systemd/system/onlyonce.service",
    ),
    ("README.md", "usr/share/doc/onlyonce/README.md"),
    ("CHANGELOG.md", "usr/share/doc/onlyonce/CHANGELOG.md"),
    ("LICENSE-MIT", "usr/share/doc/onlyonce/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/onlyonce/LICENSE-APACHE"),
    (
        "ops/prometheus/alerts.yml",
        "usr/share/doc/onlyonce/examples/alerts.yml",
    ),
    (
        "ops/grafana/onlyonce.json",
        "usr/share/doc/onlyonce/examples/dashboard.json",
    ),
];
/// Shells, and where each looks for what it completes.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/onlyonce"),
    ("zsh", "usr/share/zsh/vendor-completions/_onlyonce"),
    ("fish", "usr/share/fish/vendor_completions.d/onlyonce.fish"),
];
const EXAMPLE: &str = "usr/share/doc/onlyonce/examples/onlyonce.toml";

/// Everything that is installed, below one folder.
pub(crate) struct Tree {
    folder: PathBuf,
    version: String,
    /// When the commit was made, in seconds since 1970.
    epoch: String,
}

impl Tree {
    /// Fills `folder` from `program` and the repository.
    pub(crate) fn make(program: &Path, folder: &Path) -> Result<Self, Failure> {
        let tree = Self {
            folder: folder.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: said(
                Command::new("git")
                    .args(["log", "-1", "--format=%ct"])
                    .current_dir(root()),
            )?,
        };
        let binary = tree.place("usr/bin/onlyonce")?;
        fs::copy(program, &binary).map_err(|error| cannot(program, &error))?;
        done(Command::new("strip").arg("--strip-unneeded").arg(&binary))?;
        for (from, to) in COPIED {
            let (from, to) = (root().join(from), tree.place(to)?);
            fs::copy(&from, &to).map_err(|error| cannot(&from, &error))?;
        }
        for (shell, to) in COMPLETIONS {
            let text = said(Command::new(&binary).args(["completions", shell]))?;
            tree.write(to, &(text + "\n"), 0o644)?;
        }
        let example = [
            "init",
            "--upstream",
            "http://127.0.0.1:3000",
            "--output",
            "-",
        ];
        let text = said(Command::new(&binary).args(example))?;
        tree.write(EXAMPLE, &(text + "\n"), 0o644)?;
        let pages = tree.folder.join("usr/share/man/man1");
        done(Command::new(&binary).arg("man").arg(&pages))?;
        done(
            Command::new("sh")
                .args(["-c", "gzip -9n *.1"])
                .current_dir(&pages),
        )?;
        let notices = format!(
            "Source: {HOMEPAGE}\nLicense: MIT or Apache-2.0, as you choose; both texts are beside this file.\n"
        );
        tree.write("usr/share/doc/onlyonce/copyright", &notices, 0o644)?;
        let settings = tree.folder.join("etc/onlyonce");
        fs::create_dir_all(&settings).map_err(|error| cannot(&settings, &error))?;
        Ok(tree)
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Makes the Debian package of this version in `folder`.
    pub(crate) fn deb(&self, folder: &Path, version: &str) -> Result<PathBuf, Failure> {
        let architecture = said(Command::new("dpkg").arg("--print-architecture"))?;
        let kibibytes = said(
            Command::new("du")
                .args(["-sk", "--exclude=DEBIAN"])
                .arg(&self.folder),
        )?;
        let kibibytes = kibibytes.split_whitespace().next().unwrap_or("0");
        let path = root().join("packaging/deb/control");
        let control = fs::read_to_string(&path).map_err(|error| cannot(&path, &error))?;
        let control = control
            .replace("@VERSION@", version)
            .replace("@ARCHITECTURE@", &architecture)
            .replace("@KIBIBYTES@", kibibytes)
            .replace("@DEPENDS@", &self.libraries()?)
            .replace("@HOMEPAGE@", HOMEPAGE);
        self.write("DEBIAN/control", &control, 0o644)?;
        for script in SCRIPTS {
            let from = root().join("packaging/deb").join(script);
            let text = fs::read_to_string(&from).map_err(|error| cannot(&from, &error))?;
            self.write(&format!("DEBIAN/{script}"), &text, 0o755)?;
        }
        let sums = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums";
        done(
            Command::new("sh")
                .args(["-c", sums])
                .current_dir(&self.folder),
        )?;

        let path = folder.join(format!("onlyonce_{version}_{architecture}.deb"));
        let mut build = Command::new("dpkg-deb");
        build.env("SOURCE_DATE_EPOCH", &self.epoch);
        build.args(["--root-owner-group", "-Zxz", "-z1", "--build"]);
        done(build.arg(&self.folder).arg(&path))?;
        fs::remove_dir_all(self.folder.join("DEBIAN")).map_err(|error| cannot(&path, &error))?;
        Ok(path)
    }

    /// The packages whose libraries the program needs, with their versions.
    fn libraries(&self) -> Result<String, Failure> {
        // It wants a source package around it; an empty one will do.
        let around = self.folder.with_file_name("shlibs");
        fs::create_dir_all(around.join("debian")).map_err(|error| cannot(&around, &error))?;
        let control = around.join("debian/control");
        fs::write(&control, "Source: onlyonce\n").map_err(|error| cannot(&control, &error))?;
        let mut command = Command::new("dpkg-shlibdeps");
        command.current_dir(&around).arg("-O").arg("-e");
        command.arg(self.folder.join("usr/bin/onlyonce"));
        let told = said(&mut command)?;
        fs::remove_dir_all(&around).map_err(|error| cannot(&around, &error))?;
        let depends = told
            .lines()
            .find_map(|line| line.strip_prefix("shlibs:Depends="));
        depends
            .map(str::to_owned)
            .ok_or_else(|| Failure::new("dpkg-shlibdeps names no library"))
    }

    /// Makes the tarball in `folder`.
    pub(crate) fn tarball(&self, folder: &Path) -> Result<(), Failure> {
        let system = format!("{}-linux-gnu", std::env::consts::ARCH);
        let name = format!("onlyonce-{}-{system}", self.version);
        let path = folder.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", self.epoch));
        tar.args([
            "--transform",
            &format!("s,^usr,{name},"),
            "-I",
            "gzip -n",
            "-cf",
        ]);
        done(tar.arg(&path).arg("-C").arg(&self.folder).arg("usr"))
    }

    /// The path of a file, whose folder there then is.
    fn place(&self, to: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(to);
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent).map_err(|error| cannot(parent, &error))?;
        Ok(path)
    }

    fn write(&self, to: &str, text: &str, mode: u32) -> Result<(), Failure> {
        let path = self.place(to)?;
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written.map_err(|error| cannot(&path, &error))
    }
}

/// What a command that must succeed prints.
fn said(command: &mut Command) -> Result<String, Failure> {
    let text = stdout(command)?;
    let program = command.get_program().to_string_lossy();
    let text = text.ok_or_else(|| Failure::new(format!("{program} failed")))?;
    Ok(text.trim_end().to_owned())
}
