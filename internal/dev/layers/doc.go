// Package layers keeps the house in order: its tests say which package may import which, what
// each program may link, that every package has exactly one package comment, and that no source
// carries notes about work that was left undone. It has no code of its own.
package layers
