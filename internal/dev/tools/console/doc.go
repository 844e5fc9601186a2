// Package console checks the console's scripts, and pins the generator of its pages.
package console
