// Package installer keeps install.sh honest: its tests run the script of the
// repository under every shell of the machine against small mirrors that they make
// and sign themselves. It has no code of its own.
package installer
