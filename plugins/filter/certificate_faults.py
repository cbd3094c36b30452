# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Certificates and keys of brokers that do not go together or are not good now, found on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: certificate_faults
short_description: Says what is wrong with certificates and their keys before they are on a host
version_added: 0.1.0
description:
  - A broker takes no key that is not that of its certificate, and nobody connects to one whose certificate has ended.
options:
  _input:
    description:
      - Pairs, each with C(certificate_file) and C(key_file) for messages, and the contents C(certificate) and C(key).
      - Where others are checked against a CA, its file C(ca_file) and the content C(ca) as well.
      - Of those with C(is_managed) it does not matter when they end, since they are made anew in time.
    type: list
    elements: dict
    required: true
author:
  - mqops maintainers (@mqops)
"""

EXAMPLES = r"""
- name: Certificates are good
  ansible.builtin.assert:
    that: pairs | mqops.cluster.certificate_faults | length == 0
"""

RETURN = r"""
_value:
  description: A sentence for each fault, with the remedy; each once, however many pairs have it.
  type: list
  elements: str
"""

import datetime
import re


def form_faults(file, text):
    """What is wrong with how a file holds certificates. The broker has the same rule (io/sockets/tls.py)."""
    kinds = re.findall("-----BEGIN ((?:[A-Z0-9]+ )?CERTIFICATE)-----", text)
    if not kinds:
        return [f"{file} holds no certificate in PEM form; convert or replace it"]
    if kinds[0] != "CERTIFICATE":
        return [
            f"{file} begins with a {kinds[0]}, a form that only OpenSSL knows; convert each in it: "
            f"openssl x509 -in {file} -out NEW-FILE"
        ]
    return []


def faults_of(pair, now):
    """What is wrong with one pair."""
    certificate, authority = str(pair["certificate"]), pair.get("ca")
    found = [] if authority is None else form_faults(pair["ca_file"], str(authority))
    return found + (form_faults(pair["certificate_file"], certificate) or content_faults(pair, now))


def content_faults(pair, now):
    """What is wrong with the certificate and its key themselves."""
    # Ansible itself needs it; other commands that list filters do not.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    file, key_file = pair["certificate_file"], pair["key_file"]
    try:
        certificate = x509.load_pem_x509_certificate(str(pair["certificate"]).encode())
    except ValueError:
        return [f"{file} holds no certificate in PEM form; convert or replace it"]
    try:
        key = load_pem_private_key(str(pair["key"]).encode(), None).public_key()
    except UnsupportedAlgorithm:
        key = None
    except TypeError:
        return [f"{key_file} is encrypted, and nobody can enter its password on a host; store it without one"]
    except ValueError:
        return [f"{key_file} holds no private key in PEM form; convert or replace it"]
    try:
        certified = certificate.public_key()
    except (UnsupportedAlgorithm, ValueError):
        certified = None
    found = []
    # What is not understood here may well be by the OpenSSL of the host, and the broker there takes no wrong pair.
    if key is not None and certified is not None and certified != key:
        found.append(f"{key_file} is not the key of the certificate in {file}; set the two that belong together")
    if pair.get("is_managed"):
        return found
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if end < now:
        found.append(f"the certificate in {file} ended on {end:%Y-%m-%d}; make a new one")
    elif begin > now:
        found.append(f"the certificate in {file} is good from {begin:%Y-%m-%d %H:%M} UTC on; wait, or set the clock")
    return found


def certificate_faults(pairs):
    """What is wrong with all pairs."""
    now = datetime.datetime.now(datetime.UTC)
    return list(dict.fromkeys(fault for pair in pairs for fault in faults_of(pair, now)))


class FilterModule:
    """Names the filter."""

    def filters(self):
        """Name -> function."""
        return {"certificate_faults": certificate_faults}
