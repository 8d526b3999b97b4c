"""A token of Bob's, for an hour, as the guide's sign-in would give it: HS256 with the key in jwt.key."""

import base64
import hashlib
import hmac
import json
import time


def part(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


claims = {"iss": "https://sign-in.example", "sub": "bob", "exp": int(time.time()) + 3600}
signed = b".".join(part(json.dumps(it).encode()) for it in [{"alg": "HS256", "typ": "JWT"}, claims])
key = open("jwt.key", "rb").read()
print((signed + b"." + part(hmac.new(key, signed, hashlib.sha256).digest())).decode())
