// Package must ends a test at an error that the test is not about.
package must

import "testing"

// OK ends a test if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a function that returns the value, or ends a test if there is an error:
//
//	data := must.Get(os.ReadFile(path))(t)
func Get[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}
