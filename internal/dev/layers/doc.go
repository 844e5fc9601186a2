// Package layers has the tests of the repository's structure: which package may import which, what
// each program may link, that every package has exactly one package comment, and that no source
// carries notes about unfinished work.
package layers
