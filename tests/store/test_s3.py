"""A store in a bucket: against a server that speaks S3, started here where its package is installed."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

from circuittest.store import Entry, Store, key_of

KEY = key_of({"n": 1})


@pytest.fixture
def bucket(monkeypatch):
    server_of = pytest.importorskip("moto.server", reason="moto[server] is not installed").ThreadedMotoServer
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in (
        "AWS_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "http_proxy",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    server = server_of(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"circuits-{secrets.token_hex(4)}"  # the server keeps its buckets for as long as this process runs
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}/of/mine"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def once(store, make):
    return store.once(
        KEY, make, pack=lambda x: Entry({"x": x}, {"n": 1}), unpack=lambda entry: entry.arrays["x"]
    )


def test_what_is_kept_in_a_bucket_is_found_there(bucket, caplog):
    values = np.arange(6.0).reshape(2, 3)
    store = Store(bucket)
    assert store.get(KEY) is None
    assert once(store, lambda: values) is values
    again = Store(bucket)
    assert np.array_equal(once(again, lambda: pytest.fail("made again")), values)
    assert (again.reads, again.computed) == (1, 0)
    info = again.info()
    assert (info.entries, info.root) == (1, bucket)
    assert info.oldest > 1e9
    assert again.clear(older_than=3600) == (0, 0)
    assert again.clear() == (1, info.bytes)
    assert again.get(KEY) is None
    assert not [one for one in caplog.records if one.name.startswith("circuittest")]


def test_a_bucket_that_is_not_there_is_said_and_measuring_goes_on(bucket, caplog):
    store = Store("s3://nobody-made-this/x")
    assert once(store, lambda: 7 * np.ones(1)).tolist() == [7.0]
    assert "cannot write to the store s3://nobody-made-this/x" in caplog.text
    import s3fs

    assert not s3fs.S3FileSystem().exists("nobody-made-this")
