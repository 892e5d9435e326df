"""What answers each address: read what is asked, run an operation, show it or lead on."""
