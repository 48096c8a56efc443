// Package cdc makes CDC log tables and their rows as ScyllaDB makes them.
package cdc
