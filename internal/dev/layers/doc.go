// Package layers tests the repository's structure: which packages may import which, what each
// program may link, that every package has exactly one package comment, and that no source contains
// notes about unfinished work.
package layers
