"""Who may come in: addresses, hosts and origins, logins."""
