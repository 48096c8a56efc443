// Package peers starts the real servers that the embedded engines are compared
// with: Apache Cassandra 5.0 for scyllafake, Apache Kafka 4.1 for kfake. Both
// come as jars from Maven Central and run on a JDK 17 as processes of the test.
//
// The jars are kept in .peers at the root of the repository, which git
// ignores; the first start of each peer downloads them (about 60 MB) and holds
// them against PEER.sha256, which `sha256sum *.jar` writes after a change of
// PEER.pom.xml. A
// running peer listens on loopback only and takes up to 1.5 GB of memory.
package peers
