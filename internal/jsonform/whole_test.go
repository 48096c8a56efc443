package jsonform

import "testing"

func TestDigits(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{
		"201": "201", "-7": "-7", "201.0": "201", "201.000": "201", "2.01e2": "201", "2.010E+2": "201", "20100e-2": "201", "-1.0": "-1", "0.0": "0", "0e5": "000000",
		"1e3": "1000", "1e20": "100000000000000000000",
		"1.5": "1.5", "201e-1": "201e-1", "0.5": "0.5", "1e21": "1e21", "1e-3": "1e-3", "1.00000000000000000000001": "1.00000000000000000000001", "5e-1": "5e-1",
	} {
		if got := digits(number); got != want {
			t.Errorf("digits(%s) = %s, want %s", number, got, want)
		}
	}
}
