//! `onlyonce verify` holds a FastAPI service with the middleware to every profile.

use std::process::Command;

use onlyonce_core::Profile;

use crate::judge::{Service, assert_conforms};
use crate::package::{here, python};

async fn fastapi_keeps(profile: Profile) {
    let mut shop = Command::new(python());
    shop.arg(here().join("tests/shop.py"))
        .args(["--profile", profile.name()]);
    let mut service = Service::start(&mut shop);

    assert_conforms(&service, profile).await;

    service.kill();
}

#[tokio::test]
async fn fastapi_keeps_the_promises_of_every_profile() {
    for profile in Profile::ALL {
        fastapi_keeps(profile).await;
    }
}
