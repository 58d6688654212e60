import html
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def look(tmp_path_factory):
    """Opens a page in a browser; returns what `script` evaluates to in it and what the console complains of."""
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on PATH")

    def looked(path, script="null", *options, before="", width=1000):
        folder = tmp_path_factory.mktemp("browser")
        # Text rather than the DOM carries the answer out of the frame of a narrow page.
        answer = f"<script>(async () => parent.postMessage(JSON.stringify(await {script}), '*'))()</script>"
        page = path.read_text(encoding="utf-8").replace("</body>", f"{before}{answer}</body>")
        (folder / "page.html").write_text(page, encoding="utf-8")
        frame = folder / "frame.html"
        frame.write_text(
            f"<iframe src='page.html' style='width: {width}px; height: 3000px; border: 0'></iframe><pre></pre>"
            "<script>onmessage = ({ data }) => { document.querySelector('pre').textContent = data; }</script>"
        )
        flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=20000 --dump-dom"
        logging = ["--enable-logging=stderr", "--v=0", f"--user-data-dir={folder}/profile"]
        command = [str(BROWSER), *flags.split(), *logging, *options, frame.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        shown = re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
        assert shown, done.stderr
        return json.loads(html.unescape(shown[1])), re.findall("CONSOLE.*", done.stderr)

    return looked


@pytest.fixture
def frame():
    """Ten steps, recorded at the even ones: λ₀ is above 2/h = 40 at steps 4 and 6; steps 4 and 8 raise the loss."""
    record = np.where(np.arange(10) % 2 == 0, 1.0, np.nan)
    run = pd.DataFrame(
        {
            "step": np.arange(10),
            "loss": [2.0, 1.5, 1.2, 1.0, 0.9, 1.1, 0.8, 0.5, 0.6, 0.7],
            "learning_rate": 0.05,
            "eigenvalue_0": [10.0, np.nan, 30.0, np.nan, 44.0, np.nan, 42.0, np.nan, 36.0, np.nan],
            "eigenvalue_1": 5 * record,
            "coefficient_0_real": [-1.0, np.nan, -0.5, np.nan, 0.3, np.nan, 0.1, np.nan, -0.2, np.nan],
            "coefficient_1_real": -record,
            "regime_0": ["real stable" if recorded == 1 else None for recorded in record],
            "loss_change": [-0.5, np.nan, -0.2, np.nan, 0.2, np.nan, -0.3, np.nan, 0.1, np.nan],
            "loss_change_discrete": [-0.4, np.nan, -0.2, np.nan, 0.3, np.nan, -0.3, np.nan, 0.1, np.nan],
            "loss_change_continuous": [-0.6, np.nan, -0.2, np.nan, 0.2, np.nan, -0.3, np.nan, 0.1, np.nan],
            "drift_estimate": 0.01 * record,
            "products": 8 * record,
            "seconds": np.arange(10) / 10,
            "events": [None] * 4 + [["lambda_0 crossed 2/h at step 4: 44 against 40"]] + [None] * 5,
        }
    )
    run.attrs = {
        "config": {"rate": 0.05, "network": {"width": 32}},
        "status": "completed",
        "message": "completed 9 steps",
    }
    return run
