"""Where webhooks may go: addresses, and how they are written."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.errors import ConfigError
from sa_outbox.relay.http.addresses import DENIED_4, is_permitted, parse_address, parse_networks
from sa_outbox.relay.http.target import parse

INSIDE = [
    *("0.0.0.0", "0.1.2.3", "127.255.255.254", "::ffff:7f00:1", "64:ff9b:1::7f00:1"),
    *("10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "192.168.255.255"),
    *("127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255"),
    *("192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255"),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "64:ff9b:1::8.8.8.8"),
    *("100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2001:10::1", "2001:2::1"),
    *("2002:7f00:1::", "2002:a00:1::", "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1"),
    # What clouds tell their machines about themselves, and Azure's host at a public address.
    *("168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::168.63.129.16", "100.100.100.200"),
    *("192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe"),
    *("fe80::1", "fec0::1", "ff02::1", "ff0e::1", "4000::1"),
]
OUTSIDE = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.0.1"),
    *("172.32.0.1", "192.167.0.1", "198.17.0.1", "198.20.0.1", "223.255.255.255", "11.0.0.1"),
    *("168.63.129.15", "168.63.129.17"),
    *("2606:4700::1111", "2a00:1450:4001::200e", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"),
    "2001:4860:4860::8888",
]
REFUSED = [
    *("", "x", "//acme.example/", "acme.example/x", "https:/acme.example", "https://"),
    *("http://acme.example/", "ftp://acme.example/", "file:///etc/passwd"),
    *("gopher://acme.example/", "javascript://x/", "https://u:p@acme.example/"),
    *("https://u@acme.example/", "https://good.example@evil.example/"),
    *("https://acme.example/#x", "https://acme.example#@evil.example/"),
    *("https://acme.example\\@evil.example/", "https://acme.example/a b"),
    *("https://acme.example/\r\nx: y", "https://acme.example/\x00", "https://ac\tme/"),
    *("https://äcme.example/", "https://acme.example/ä", "https://acme.example:x/"),
    *("https://acme.example:0/", "https://acme.example:65536/", "https://acme.example:/"),
    *("https://.example/", "https://acme..example/", "https://acme.example./"),
    *(
        "https://-a.example/",
        "https://a%2fb.example/",
        "https://[::1",
        "https://[::1%25e]/",
    ),
    *("https://[fe80::1%eth0]/", "https://[zz]/", "https://127.1/", "https://2130706433/"),
    *("https://127.0.1/", "https://0x7f.0.0.1/", "https://017700000001/", "https://0/"),
    *("unix:///var/run/docker.sock", "https://acme.example:443\r\nx:/"),
    *("https://0x7f000001/", "https://0177.0.0.1/", "https://1.2.3.4.5/"),
    *(
        "https://127.0.0.0x1/",
        "https://acme.example/a/../b",
        "https://acme.example/%2e%2E/",
    ),
    *("https://①②⑦.0.0.1/", "https://acme.example/" + "x" * 2000),
    *("https://" + "a" * 64 + ".example/", " https://acme.example/"),
]


class TestAddresses:
    def test_inside(self) -> None:
        assert [each for each in INSIDE if is_permitted(ip_address(each))] == []

    def test_outside(self) -> None:
        assert [each for each in OUTSIDE if not is_permitted(ip_address(each))] == []

    def test_what_is_allowed_by_hand(self) -> None:
        allow = parse_networks(["10.1.0.0/16", "fd00::/8", "64:ff9b:1::/48"])

        for good in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "64:ff9b:1::1"):
            assert is_permitted(ip_address(good), allow)
        for bad in ("10.2.0.1", "::ffff:10.2.0.1", "64:ff9b::10.1.2.3", "fc00::1", "127.0.0.1"):
            assert not is_permitted(ip_address(bad), allow)

    @given(st.ip_addresses(v=4))
    def test_one_inside_another_is_no_way_around(self, inner: IPv4Address) -> None:
        for form in ("::ffff:{}", "64:ff9b::{}"):
            assert is_permitted(IPv6Address(form.format(inner))) is is_permitted(inner)
        for form in ("::{}", "::ffff:0:{}", "64:ff9b:1::{}"):
            assert not is_permitted(IPv6Address(form.format(inner)))
        assert not is_permitted(IPv6Address(0x2002 << 112 | int(inner) << 80))

    @given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
    def test_nothing_is_permitted_that_python_knows_to_be_inside(
        self, address: IPv4Address | IPv6Address
    ) -> None:
        if is_permitted(address) and address not in (IPv6Address("::"),):
            mapped = getattr(address, "ipv4_mapped", None)
            seen = address if mapped is None else mapped
            assert not seen.is_private
            assert not seen.is_multicast
            assert not seen.is_loopback
            assert not seen.is_link_local

    @pytest.mark.parametrize("text", ["fe80::1%lo", "2606:4700::1111%1"])
    def test_an_address_with_a_zone_is_no_address_also_where_its_network_is_allowed(
        self, text: str
    ) -> None:
        assert is_permitted(parse_address(text.partition("%")[0]), parse_networks(["fe80::/10"]))

        with pytest.raises(ValueError, match="zone"):
            parse_address(text)

    def test_the_list_holds_what_is_private(self) -> None:
        assert any(IPv4Address("169.254.169.254") in each for each in DENIED_4)

    @pytest.mark.parametrize("given", ["10.0.0.0/8", ["10.0.0.1/8"], ["x"], [None], None, 7])
    def test_what_is_no_network(self, given: list[str]) -> None:
        with pytest.raises(ConfigError, match="allow"):
            parse_networks(given)


class TestTargets:
    @pytest.mark.parametrize(
        ("url", "host", "port", "path", "header"),
        [
            ("https://acme.example", "acme.example", 443, "/", "acme.example"),
            ("HTTPS://Acme.Example:8443/a?b=c", "acme.example", 8443, "/a?b=c", None),
            ("https://acme.example:443/x", "acme.example", 443, "/x", "acme.example"),
            ("https://acme.example?x=1", "acme.example", 443, "/?x=1", "acme.example"),
            ("https://[2606:4700::1]/", "2606:4700::1", 443, "/", "[2606:4700::1]"),
            ("https://[2606:4700::1]:8/", "2606:4700::1", 8, "/", "[2606:4700::1]:8"),
            ("https://1.2.3.4/", "1.2.3.4", 443, "/", "1.2.3.4"),
            ("https://a_b.xn--4ca/~x/%20", "a_b.xn--4ca", 443, "/~x/%20", "a_b.xn--4ca"),
        ],
    )
    def test_parts(self, url: str, host: str, port: int, path: str, header: str | None) -> None:
        found = parse(url, allow_http=False, ports="any")

        assert (found.scheme, found.host, found.port, found.path) == ("https", host, port, path)
        assert found.host_header == (header or f"{host}:{port}")

    def test_refused(self) -> None:
        def is_refused(url: str) -> bool:
            try:
                parse(url, allow_http=False)
            except ConfigError:
                return True
            return False

        assert [each for each in REFUSED if not is_refused(each)] == []

    @given(st.text())
    def test_whatever_is_given_it_is_parsed_or_refused(self, text: str) -> None:
        for url in (text, f"https://{text}", f"https://acme.example/{text}"):
            try:
                found = parse(url, allow_http=False)
            except ConfigError:
                continue
            assert "\n" not in found.path + found.host
            assert found.host in url.lower() or found.address is not None
