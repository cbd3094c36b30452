"""Shells on hosts for live operations: every host that Ansible reaches over SSH, reached the same way by paramiko.

`variables` turns host variables into the command line that Ansible would give to ssh, `settings` asks OpenSSH itself
(`ssh -G`) what that means with every configuration file read, `client` connects with paramiko. So host patterns,
Include, Match and tokens mean exactly what they mean to Ansible. What paramiko cannot honour is an error that names
the option.
"""
