// Package peers starts the real servers that the embedded engines are compared
// with: Apache Cassandra 5.0 for scyllafake, Apache Kafka 4.1 for kfake. Both
// are jars of Maven Central and run on a JDK 17 as processes of the test.
//
// The jars are cached in .peers at the root of the repository, which git
// ignores. The first start of each peer downloads them (about 60 MB) and checks
// them against PEER.sha256, the output of `sha256sum *.jar`; update it after a
// change of PEER.pom.xml. A running peer listens on loopback only and uses up
// to 1.5 GB of memory.
package peers
