# The service that is measured. The code in echo_capnp.rs was made from this file by
#   cargo install capnpc --version 0.27.0
#   capnp compile -o rust:. --src-prefix=. echo.capnp
@0xd9ef69683e99dc09;

struct Payload {
  bytes @0 :Data;
}

interface Echo {
  # Gives the payload back.
  echo @0 Payload -> Payload;
  # Takes a large payload, and gives an empty one back.
  put @1 Payload -> Payload;
}
