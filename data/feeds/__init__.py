"""Feeds: batches of one data layer on one rank, made ahead by reader threads."""
