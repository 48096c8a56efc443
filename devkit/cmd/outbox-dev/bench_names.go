package main

// peerName is the name of the peer of the relay in a report.
const peerName = "scylla-cdc-go + franz-go"
