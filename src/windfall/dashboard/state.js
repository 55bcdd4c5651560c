// Values whose change draws the page anew, at most once a frame. The page is small enough to be drawn whole.

let draw = () => {},
	planned = false
export const drawnBy = how => (draw = how)

export function signal(value) {
	return {
		get value() {
			return value
		},
		set value(next) {
			if (next === value) return
			value = next
			if (planned) return
			planned = true
			requestAnimationFrame(() => ((planned = false), draw()))
		},
	}
}
