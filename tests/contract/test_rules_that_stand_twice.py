"""What one program knows and another has to repeat, as it cannot import it: both say the same of all that they find."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.io.sockets import tls

from plugins.filter import certificate_faults

KINDS = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE", "CERTIFICATE REQUEST", "X509 CRL", "PRIVATE KEY")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_forms_of_certificates_are_those_that_the_broker_takes(end: str) -> None:
    parts = ["", "Subject: CN = mq1", "-----BEGIN certificate-----", "----BEGIN CERTIFICATE----", "\u00e9"]
    parts += [f"-----BEGIN {kind}-----{end}AA=={end}-----END {kind}-----" for kind in KINDS]
    for some in product(parts, repeat=3):
        text = end.join(some)
        fault = tls.form_fault("a.pem", text.encode())
        assert certificate_faults.form_faults("a.pem", text) == ([fault] if fault else []), text
