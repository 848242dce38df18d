"""The packages that scripts ask for most do what they are for, in a sandbox without any network."""

from pathlib import Path

import pytest

from integration.support.servers import StartServer, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]

LIST = Path(__file__).parent.parent / "sandbox_image" / "warm-up.txt"

SCRIPT = """
import http.server, io, threading

class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"hello": "world"}')
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}/"

def does_requests():
    import requests
    return requests.get(address, timeout=10).json()["hello"]

def does_httpx():
    import httpx
    return httpx.get(address, timeout=10).json()["hello"]

def does_numpy():
    import numpy
    return numpy.linalg.solve(numpy.array([[3.0, 1], [1, 2]]), numpy.array([9.0, 8])).round().tolist()

def does_pandas():
    import pandas
    frame = pandas.DataFrame({"kind": ["a", "b", "a"], "value": [1, 2, 3]})
    return frame.groupby("kind")["value"].sum().to_dict()

def does_matplotlib():
    import matplotlib.pyplot as plt
    plt.plot([1, 2, 3], [1, 4, 9])
    plt.savefig("plot.png")
    return open("plot.png", "rb").read(8)

def does_scipy():
    from scipy import optimize
    return round(optimize.brentq(lambda x: x * x - 2, 0, 2), 4)

def does_scikit_learn():
    from sklearn.linear_model import LinearRegression
    return round(float(LinearRegression().fit([[0], [1], [2]], [1, 3, 5]).predict([[3]])[0]), 6)

def does_pydantic():
    from pydantic import BaseModel
    class Point(BaseModel):
        x: int
    return Point.model_validate_json('{"x": "5"}').x

def does_rich():
    from rich.console import Console
    from rich.table import Table
    table = Table("name")
    table.add_row("inside")
    out = io.StringIO()
    Console(file=out, width=40).print(table)
    return "inside" in out.getvalue()

def does_polars():
    import polars
    return polars.DataFrame({"a": [1, 2, 3]}).filter(polars.col("a") > 1)["a"].sum()

def does_beautifulsoup4():
    from bs4 import BeautifulSoup
    return BeautifulSoup("<p>one<b>two</b></p>", "html.parser").b.text

def does_pillow():
    from PIL import Image
    Image.new("RGB", (8, 4), "red").save("red.jpg")
    return Image.open("red.jpg").size

def does_sympy():
    import sympy
    x = sympy.Symbol("x")
    return str(sympy.integrate(2 * x, x))

def does_pyyaml():
    import yaml
    return yaml.safe_load("a: [1, 2]")

def does_fastapi():
    from fastapi import FastAPI
    app = FastAPI()
    @app.get("/items/{number}")
    def item(number: int) -> dict[str, int]:
        return {"number": number}
    return sorted(app.openapi()["paths"])

def does_sqlalchemy():
    from sqlalchemy import create_engine, text
    with create_engine("sqlite://").connect() as connection:
        return connection.execute(text("select 6 * 7")).scalar()

for name, does in list(globals().items()):
    if name.startswith("does_"):
        print(name.removeprefix("does_").replace("_", "-"), does(), flush=True)
"""

EXPECTED = """\
requests world
httpx world
numpy [2.0, 3.0]
pandas {'a': 4, 'b': 2}
matplotlib b'\\x89PNG\\r\\n\\x1a\\n'
scipy 1.4142
scikit-learn 7.0
pydantic 5
rich True
polars 5
beautifulsoup4 two
pillow (8, 4)
sympy x**2
pyyaml {'a': [1, 2]}
fastapi ['/items/{number}']
sqlalchemy 42"""


async def test_the_sixteen_packages_of_the_list_do_what_they_are_for_on_both_pythons(
    start_server: StartServer,
) -> None:
    listed = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    assert listed == [line.split()[0] for line in EXPECTED.splitlines()]
    flags = ("--network", "none", "--memory", "2GiB", "--pool-size", "1", "--install-timeout", "300")
    async with start_server(*flags) as server:
        for python in ("3.13", "3.14"):
            result = await server.execute(
                SCRIPT, dependencies=listed, python_version=python, timeout_seconds=100
            )
            assert EXPECTED in text_of(result), text_of(result)
