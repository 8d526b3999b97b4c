//! What a linker needs to know for an addon.

fn main() {
    napi_build::setup();
}
