"""Pushes a folder with huggingface_hub: to main, and to a branch that starts at the first commit.

Called by the test that check_hub.sh runs.
"""

import os
import sys

endpoint, token, repo, folder = sys.argv[1:]
os.environ["HF_ENDPOINT"] = endpoint  # huggingface_hub reads it when it is imported

from huggingface_hub import HfApi  # noqa: E402

api = HfApi(endpoint=endpoint, token=token)
api.create_repo(repo, private=True, exist_ok=True, repo_type="model")
api.upload_folder(repo_id=repo, folder_path=folder, commit_message="A push")
first = api.list_repo_commits(repo)[-1].commit_id
api.create_branch(repo, branch="v1", revision=first, exist_ok=True)
api.upload_folder(repo_id=repo, folder_path=folder, revision="v1", commit_message="On a branch")
