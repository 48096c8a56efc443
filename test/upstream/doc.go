// Package upstream shows defects of libraries that the product avoids, each as small as it
// can be. docs/upstream describes them. A test that fails means that the library is
// repaired: the product's own measure can then go.
package upstream
