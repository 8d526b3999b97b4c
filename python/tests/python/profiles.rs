//! `onlyonce verify` holds a FastAPI and a Flask service with the middleware to every profile.

use std::process::Command;

use onlyonce_core::Profile;

use crate::judge::{Service, assert_conforms};
use crate::package::{here, python};

async fn keeps(shop: &str, profile: Profile, more: &[&str]) {
    let mut command = Command::new(python());
    command
        .arg(here().join("tests").join(shop))
        .args(["--profile", profile.name()])
        .args(more);
    let mut service = Service::start(&mut command);

    assert_conforms(&service, profile).await;

    service.kill();
}

#[tokio::test]
async fn fastapi_keeps_the_promises_of_every_profile() {
    for profile in Profile::ALL {
        keeps("shop.py", profile, &[]).await;
    }
}

/// Waitress joins repeated headers with a comma and a space, which most profiles allow in a key.
#[tokio::test]
async fn flask_keeps_the_promises_of_every_profile() {
    for profile in Profile::ALL {
        keeps("shop_wsgi.py", profile, &[]).await;
    }
}

/// Werkzeug joins them with a comma alone, which nearly every profile allows.
#[tokio::test]
async fn flask_keeps_the_promises_of_the_usual_profile_on_another_server() {
    keeps("shop_wsgi.py", Profile::Standard, &["--server=werkzeug"]).await;
}
