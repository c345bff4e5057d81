"""Access to a Kafka cluster: TLS, a login, and where the secrets for both are.

A statement names the file or the environment variable that holds a secret, never the secret itself.
It is read again whenever a client is created, so a changed password needs no restart, and it is
passed on only to Kafka's client.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headwater.errors import InputError, suggest

SECURITY_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512")
KEYSTORE_TYPES = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}
MAX_FILE_BYTES = 1 << 20

SECRET_VARIABLE_PREFIX = "HEADWATER_SECRET_"
"""Only variables with this prefix can be named. Otherwise anyone who may submit a statement could
have any variable of the engine sent to a server of their own."""


@dataclass(frozen=True, kw_only=True)
class KafkaAccess:
    """The security options of a Kafka source or sink."""

    security: str = "plaintext"
    mechanism: str = ""
    username: str = ""
    password_file: str = ""
    password_env: str = ""
    ca_file: str = ""
    ca_password_file: str = ""
    ca_password_env: str = ""
    certificate_file: str = ""
    key_file: str = ""
    key_password_file: str = ""
    key_password_env: str = ""
    check_hostname: bool = True

    @property
    def has_login(self) -> bool:
        return self.security.startswith("sasl_")

    @property
    def has_tls(self) -> bool:
        return self.security.endswith("ssl")


LOGIN_OPTIONS = ("mechanism", "username", "password_file", "password_env")
SECRET_OPTIONS = {
    "password": "password",
    "sasl_jaas_config": "password",
    "ca_password": "ca_password",
    "key_password": "key_password",
}
"""Options that people may try to write into a statement, and the secret that they mean."""


# ---- declaring


def refuse_secrets(names: Mapping[str, Any]) -> None:
    """Raise InputError if a statement contains a secret instead of naming its file or variable."""
    for name in names:
        if name in SECRET_OPTIONS:
            raise InputError(
                f"{name} must not be in a statement, which is stored and shown: put it into a file "
                f"and write {SECRET_OPTIONS[name]}_file => '/path', or {SECRET_OPTIONS[name]}_env => "
                f"'{SECRET_VARIABLE_PREFIX}..' with the name of a variable in the engine's environment"
            )


def parse_access(options: Mapping[str, Any]) -> KafkaAccess:
    """The security options among these; raises InputError if they do not fit together."""
    values = {f.name: options[f.name] for f in fields(KafkaAccess) if f.name in options}
    for name, value in values.items():
        if name == "check_hostname":
            if not isinstance(value, bool):
                raise InputError("check_hostname is TRUE or FALSE")
        elif not isinstance(value, str) or not value:
            raise InputError(f"{name} is a text in quotes")
    for name, allowed in (("security", SECURITY_PROTOCOLS), ("mechanism", MECHANISMS)):
        if name in values:
            values[name] = values[name].lower()
            if values[name] not in allowed:
                raise InputError(f"kafka has no {name} {values[name]}; {suggest('', allowed)}")
    access = KafkaAccess(**values)
    _check_login(access, values)
    _check_tls(access, values)
    return access


def _check_login(access: KafkaAccess, options: Mapping[str, Any]) -> None:
    if not access.has_login:
        _refuse_options(options, LOGIN_OPTIONS, "security => 'sasl_ssl' (or 'sasl_plaintext')")
        return
    for name in ("mechanism", "username"):
        if not options.get(name):
            choices = f": {', '.join(MECHANISMS)}" if name == "mechanism" else ""
            raise InputError(f"security => '{access.security}' needs a {name}{choices}")
    if not _is_secret_named(access, "password"):
        raise InputError(
            f"security => '{access.security}' needs a password: write password_file => '/path', or "
            f"password_env => '{SECRET_VARIABLE_PREFIX}..'"
        )


def _check_tls(access: KafkaAccess, options: Mapping[str, Any]) -> None:
    tls_options = [
        f.name for f in fields(KafkaAccess) if f.name not in ("security", *LOGIN_OPTIONS)
    ]
    if not access.has_tls:
        _refuse_options(options, tls_options, "security => 'ssl' (or 'sasl_ssl')")
        return
    for what in ("ca_password", "key_password"):
        _is_secret_named(access, what)
    is_store = Path(access.certificate_file).suffix in KEYSTORE_TYPES
    if access.certificate_file and not is_store and not access.key_file:
        raise InputError(
            "certificate_file needs a key_file, unless it is a .jks or .p12 that holds both"
        )
    if access.key_file and (is_store or not access.certificate_file):
        raise InputError("key_file needs a certificate_file in PEM format")


def _refuse_options(
    options: Mapping[str, Any], names: tuple[str, ...] | list[str], needed: str
) -> None:
    for name in names:
        if name in options:
            raise InputError(f"{name} needs {needed}")


def _is_secret_named(access: KafkaAccess, secret: str) -> bool:
    """Whether a secret is named; raises InputError if it is named twice, or must not be read."""
    file, variable = getattr(access, f"{secret}_file"), getattr(access, f"{secret}_env")
    if file and variable:
        raise InputError(f"{secret}_file and {secret}_env exclude each other")
    if variable and not variable.startswith(SECRET_VARIABLE_PREFIX):
        raise InputError(
            f"{secret}_env must name a variable that begins with {SECRET_VARIABLE_PREFIX}, not "
            f"{variable}: statements cannot use other variables of the engine"
        )
    return bool(file or variable)


# ---- using


def security_settings(access: KafkaAccess) -> dict[str, str]:
    """The settings of Kafka's client with the secrets; raises InputError if one is missing."""
    settings: dict[str, str] = {}
    if access.security != "plaintext":
        settings["security.protocol"] = access.security.upper()
    if access.has_login:
        settings["sasl.mechanism"] = access.mechanism.upper()
        settings["sasl.jaas.config"] = _jaas_config(access)
    if access.has_tls:
        settings |= _truststore_settings(access) | _keystore_settings(access)
        if not access.check_hostname:
            settings["ssl.endpoint.identification.algorithm"] = ""
    return settings


def _jaas_config(access: KafkaAccess) -> str:
    module = "plain.PlainLoginModule" if access.mechanism == "plain" else "scram.ScramLoginModule"
    return (
        f"org.apache.kafka.common.security.{module} required "
        f"username={_quote_jaas(access.username)} password={_quote_jaas(_read_secret(access, 'password'))};"
    )


def _quote_jaas(text: str) -> str:
    """A text quoted for Kafka's JAAS parser, which understands the escapes of Java."""
    # Backslashes first, or those that the others add would be doubled.
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


def _truststore_settings(access: KafkaAccess) -> dict[str, str]:
    """The settings for trusted authorities; Java's own list if none are given."""
    if not access.ca_file:
        return {}
    if store := KEYSTORE_TYPES.get(Path(access.ca_file).suffix):
        settings = {"ssl.truststore.type": store, "ssl.truststore.location": access.ca_file}
        # Only to report a missing file in our own words.
        _read_text("ca_file", access.ca_file, binary=True)
        if _is_secret_named(access, "ca_password"):
            settings["ssl.truststore.password"] = _read_secret(access, "ca_password")
        return settings
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _read_pem("ca_file", access.ca_file, "CERTIFICATE"),
    }


def _keystore_settings(access: KafkaAccess) -> dict[str, str]:
    """The settings for the client's certificate, if there is one."""
    if not access.certificate_file:
        return {}
    password = (
        _read_secret(access, "key_password") if _is_secret_named(access, "key_password") else ""
    )
    if store := KEYSTORE_TYPES.get(Path(access.certificate_file).suffix):
        _read_text("certificate_file", access.certificate_file, binary=True)
        settings = {"ssl.keystore.type": store, "ssl.keystore.location": access.certificate_file}
        return settings | ({"ssl.keystore.password": password} if password else {})
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _read_pem(
            "certificate_file", access.certificate_file, "CERTIFICATE"
        ),
        "ssl.keystore.key": _read_pem("key_file", access.key_file, "PRIVATE KEY"),
    }
    return settings | ({"ssl.key.password": password} if password else {})


def _read_pem(option: str, path: str, what: str) -> str:
    text = _read_text(option, path)
    if what == "PRIVATE KEY" and ("BEGIN RSA PRIVATE" in text or "BEGIN EC PRIVATE" in text):
        raise InputError(
            f"{option} {path} is in a format that Kafka cannot read: convert it with "
            "openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW"
        )
    if f"{what}-----" not in text:
        raise InputError(f"{option} {path} holds no {what.lower()} in PEM format")
    return text


def _read_secret(access: KafkaAccess, secret: str) -> str:
    """A secret from its file or variable, without the line feed that editors add at the end."""
    file, variable = getattr(access, f"{secret}_file"), getattr(access, f"{secret}_env")
    value = _read_text(f"{secret}_file", file) if file else os.environ.get(variable, "")
    value = value.rstrip("\r\n")
    if not value:
        problem = f"{secret}_file {file} is empty" if file else f"variable {variable} is not set"
        raise InputError(f"{problem}: the engine cannot log in to Kafka")
    return value


def _read_text(option: str, path: str, binary: bool = False) -> str:
    try:
        with Path(path).open("rb") as file:
            # No more than that, whatever the path names; the one byte shows that there is more.
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"{option} {path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{option} {path} is longer than {MAX_FILE_BYTES:,} bytes")
    if binary:
        return ""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InputError(f"{option} {path} is not UTF-8 text") from None
