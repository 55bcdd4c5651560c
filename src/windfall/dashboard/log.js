// The log of one attempt: opens at its end or at a linked line, keeps a window of lines in both directions, follows,
// searches on the server. Lines are found by their byte position, so a gigabyte is as quick as a page.

import {useEffect, useRef, useState} from "./vendor/hooks.js"
import {heed, link, own} from "./api.js"
import {pieces} from "./ansi.js"
import {Command, Empty, Problem, html, jobCommand} from "./parts.js"
import {route, setQuery} from "./route.js"
import {bytes, clock, count, num} from "./words.js"

const HEIGHT = 18,
	PAGE = 500,
	MOST = 5000,
	MOST_WRAPPED = 1000

function Line({line: [at, time, text], times, chosen, find, wrap, top}) {
	const shown = pieces(text.slice(0, 20000))
	return html`<div class="line ${chosen ? "chosen" : ""}" style=${wrap ? {} : {top: `${top}px`}}>
		<button class=at tabindex="-1" title="link to this line" aria-label="link to the line at byte ${at}" onClick=${() => setQuery({at})}>${times ? clock(time) : "#"}</button>
		<span class=text dir="ltr">${shown.map(([piece, kind]) => html`<span class=${kind}>${marked(piece, find)}</span>`)}${text.length > 20000 && html`<i> … ${num(text.length)} characters</i>`}</span></div>`
}

function marked(text, find) {
	const at = find ? text.toLowerCase().indexOf(find.toLowerCase()) : -1
	return at < 0
		? text
		: html`${text.slice(0, at)}<mark>${text.slice(at, at + find.length)}</mark>${text.slice(at + find.length)}`
}

export function Log({id, attempt, live}) {
	const q = route.value.q,
		target = q.at == null ? null : Number(q.at),
		wrap = q.wrap === "1",
		times = q.times === "1"
	const [log, setLog] = useState(null) // {lines, start, end, size, before, after}
	const [error, setError] = useState(null)
	const [follow, setFollow] = useState(target == null)
	const [unseen, setUnseen] = useState(0)
	const [scroll, setScroll] = useState({top: 0, height: 400})
	const box = useRef(),
		busy = useRef(false),
		held = useRef(null),
		following = useRef(follow)
	held.current = log
	following.current = follow
	const most = wrap ? MOST_WRAPPED : MOST

	const ask = async place => {
		if (busy.current) return
		busy.current = true
		try {
			const answer = await own("LogWindow", {jobId: id, attempt, lines: PAGE, ...place})
			setError(null)
			return answer
		} catch (problem) {
			setError(problem)
		} finally {
			busy.current = false
		}
	}
	const take = answer =>
		answer &&
		setLog({
			lines: answer.lines,
			start: answer.start,
			end: answer.end,
			size: answer.size,
			before: answer.more.before,
			after: answer.more.after,
		})
	const open = async place => {
		take(await ask(place))
		if (place.around != null) requestAnimationFrame(() => reveal(place.around))
	}
	const reveal = position => {
		const at = held.current?.lines.findLastIndex(([start]) => start <= position) ?? -1
		if (at >= 0 && box.current)
			box.current.scrollTop = wrap
				? box.current.children[0].children[at]?.offsetTop - 100
				: at * HEIGHT - box.current.clientHeight / 3
	}
	const older = async () => {
		const answer = await ask({before: held.current.start})
		if (!answer) return
		const height = box.current.scrollHeight,
			lines = [...answer.lines, ...held.current.lines],
			kept = lines.slice(0, most)
		setLog({
			...held.current,
			lines: kept,
			start: answer.start,
			end: kept.length < lines.length ? lines[most][0] : held.current.end,
			before: answer.more.before,
			after: kept.length < lines.length || held.current.after,
			size: answer.size,
		})
		requestAnimationFrame(
			() =>
				box.current &&
				(box.current.scrollTop += wrap ? box.current.scrollHeight - height : answer.lines.length * HEIGHT),
		)
	}
	const newer = async () => {
		const old = held.current,
			answer = old && (await ask({after: old.end}))
		if (!answer) return
		if (!answer.lines.length) return setLog({...old, size: answer.size, after: answer.more.after})
		// A line that had no end yet comes once more, whole.
		const lines = [...old.lines.filter(([start]) => start < answer.start), ...answer.lines],
			dropped = Math.max(0, lines.length - most)
		setLog({
			...old,
			lines: lines.slice(dropped),
			start: dropped ? lines[dropped][0] : old.start,
			before: old.before || dropped > 0,
			end: answer.end,
			after: answer.more.after,
			size: answer.size,
		})
		if (!following.current) {
			if (dropped && !wrap) requestAnimationFrame(() => (box.current.scrollTop -= dropped * HEIGHT))
			setUnseen(n => n + answer.lines.length)
		} else if (answer.more.after) requestAnimationFrame(newer)
	}

	useEffect(() => {
		setFollow(target == null)
		setUnseen(0)
		open(target == null ? {} : {around: target})
	}, [id, attempt, link.value.up])
	useEffect(() => {
		if (target == null || !log) return
		if (target < log.start || target >= log.end) open({around: target})
		else if (!following.current) reveal(target)
	}, [target])
	// Following: by Watch, and by asking where there is no stream.
	useEffect(() => {
		if (!live) return void newer()
		const stop = heed(`log:${id}@${attempt}`, () => held.current && !held.current.after && newer())
		const timer = setInterval(
			() => !document.hidden && !link.value.streaming && held.current && !held.current.after && newer(),
			2000,
		)
		return () => (stop(), clearInterval(timer))
	}, [id, attempt, live])
	useEffect(() => {
		if (follow && box.current) box.current.scrollTop = box.current.scrollHeight
	}, [log, follow, wrap, scroll.height])

	const scrolled = () => {
		const {scrollTop, clientHeight, scrollHeight} = box.current,
			atEnd = scrollTop + clientHeight > scrollHeight - HEIGHT * 2
		setScroll({top: scrollTop, height: clientHeight})
		if (!log) return
		if (follow && !atEnd && scrollTop < scroll.top - 2) setFollow(false)
		if (!follow && atEnd && !log.after) (setFollow(true), setUnseen(0))
		if (scrollTop < 60 * HEIGHT && log.before && !follow) older()
		if (scrollTop + clientHeight > scrollHeight - 60 * HEIGHT && log.after) newer()
	}
	const toEnd = () => (setQuery({at: ""}), setUnseen(0), setFollow(true), log?.after ? open({}) : null)
	const toStart = () => (setFollow(false), setQuery({at: 0}), open({around: 0}))
	const keys = event => {
		if (event.key === "End" || event.key === "G") toEnd()
		else if (event.key === "Home") toStart()
		else if (event.key === "t") setQuery({times: times ? "" : 1})
		else return
		event.preventDefault()
		event.stopPropagation()
	}
	const lines = log?.lines ?? [],
		first = wrap ? 0 : Math.max(0, Math.floor(scroll.top / HEIGHT) - 30),
		last = wrap ? lines.length : first + Math.ceil(scroll.height / HEIGHT) + 60
	return html`<div class=log-view><div class="row tools"><${Find} id=${id} attempt=${attempt} q=${q} leave=${() => setFollow(false)} />
			<button aria-pressed=${times} onClick=${() => setQuery({times: times ? "" : 1})}>times</button><button aria-pressed=${wrap} onClick=${() => setQuery({wrap: wrap ? "" : 1})}>wrap</button>
			<button onClick=${toStart}>start</button><button aria-pressed=${follow} onClick=${toEnd}>${unseen ? count(unseen, "new line") : live ? "follow" : "end"}</button>
			<span class=grow /><small>${log ? bytes(log.size) : ""}</small><${Command} line=${`${jobCommand("logs", id)}${live ? " --follow" : ""}`} /></div>
		<${Problem} error=${error} again=${() => open({})} />
		${
			log && !lines.length
				? html`<${Empty}>${live ? "The job has written nothing yet. Lines appear here as it writes them." : "The job wrote nothing, or its log was removed after its time."}${live && html` A Python program that writes into a pipe keeps its lines back: <code>python -u</code> or <code>PYTHONUNBUFFERED=1</code> helps.`}<//>`
				: html`<div class="log ${wrap ? "wrapped" : ""}" ref=${box} tabindex="0" role="log" aria-live="off" aria-label="log of attempt ${attempt}" onScroll=${scrolled} onKeyDown=${keys}>
				<div style=${wrap ? {} : {height: `${lines.length * HEIGHT}px`}}>${lines.slice(first, last).map((line, i) => html`<${Line} key=${line[0]} line=${line} times=${times} wrap=${wrap} find=${q.find} chosen=${target != null && line[0] <= target && (lines[first + i + 1]?.[0] ?? log.end) > target} top=${(first + i) * HEIGHT} />`)}</div></div>`
		}</div>`
}

function Find({id, attempt, q, leave}) {
	const [state, setState] = useState("")
	const run = useRef(0)
	const find = async (text, direction, from) => {
		const mine = ++run.current
		setState("searching…")
		leave()
		try {
			for (;;) {
				const answer = await own("FindInLog", {jobId: id, attempt, text, from, direction, limit: 1})
				if (mine !== run.current) return
				if (answer.matches.length) return (setQuery({at: answer.matches[0][0], find: text}), setState(""))
				if (answer.done) return setState(from == null ? "not in this log" : "no more")
				from = answer.scannedTo
				setState(`searching… ${bytes(from)} of ${bytes(answer.size)}`)
			}
		} catch (error) {
			setState(error.message)
		}
	}
	const go = event => {
		event.preventDefault()
		const text = event.target.elements.text.value,
			back = event.submitter?.value === "before"
		if (!text) return setQuery({find: ""})
		const at = q.at != null && q.find === text ? Number(q.at) : null
		find(text, back ? "before" : "after", at == null ? null : back ? at : at + 1)
	}
	return html`<form class=row onSubmit=${go}><input id="log-search" name="text" placeholder="search this log ( / )" aria-label="search this log" defaultValue=${q.find ?? ""} maxlength="500" spellcheck=${false} />
		<button value="after">next</button><button value="before">previous</button><span role="status" class=quiet>${state}</span></form>`
}
