// Package layers tests the repository's structure. Its tests check the imports of each package and
// the packages that each program links, that every package has exactly one package comment, and
// that no source contains notes about unfinished work.
package layers
