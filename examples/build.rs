//! Generates the client and server of the gRPC example's service. With a `.proto` file and protoc
//! at hand, `tonic_prost_build` does this and the messages too.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let charge = Method::builder()
        .name("charge")
        .route_name("Charge")
        .input_type("crate::ChargeRequest")
        .output_type("crate::Receipt")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let payments = Service::builder()
        .name("Payments")
        .package("example")
        .method(charge)
        .build();
    Builder::new().compile(&[payments]);
}
