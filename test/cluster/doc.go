// Package cluster tests the services on a database of three nodes, one of which is
// silent or dead, in virtual time.
package cluster
